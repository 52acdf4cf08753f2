"""The PostgreSQL wire protocol in front of the curator: what psql, drivers and BI tools speak.

A client's statement goes one of two ways. A question about private tables goes to the curator through the service; it
is asked once for each time it is executed, and describing it is free. Everything else goes to a shadow PostgreSQL that
holds empty tables. Messages are read and written here, without a library, in asyncio.
"""
