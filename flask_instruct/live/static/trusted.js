// Markup that may be parsed: what the server has sent over its own line, and no other markup is parsed here.

const policy = made();

/** @returns {{createHTML: (html: string) => any} | undefined} */
function made() {
  try {
    return /** @type {any} */ (window).trustedTypes?.createPolicy("flask-instruct", {
      /** @param {string} html */
      createHTML: (html) => html,
    });
  } catch (error) {
    console.error("Add flask-instruct to the trusted-types of the Content-Security-Policy.", error);
    return undefined;
  }
}

/** @param {string} html */
export function trusted(html) {
  return /** @type {string} */ (policy ? policy.createHTML(html) : html);
}
