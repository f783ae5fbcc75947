"""Which rule makes numbers of a table: federations agree on it, at sites that need no more of this room than this."""

VERSION = 1  # whoever changes what ``TableEncoder`` makes of a table gives it another number
