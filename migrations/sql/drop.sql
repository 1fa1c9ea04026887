-- Everything of the installation, and the schema with it.
drop schema if exists {schema} cascade
