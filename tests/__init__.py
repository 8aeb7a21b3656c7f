"""The tests mirror the package: one file a room, on real servers, processes and browsers."""
