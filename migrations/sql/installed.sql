-- Columns: the server's version number; whether the schema exists; whether it holds an installation;
-- the database's encoding.
select pg_catalog.current_setting('server_version_num')::int,
       pg_catalog.to_regnamespace({schema_literal}) is not null,
       pg_catalog.to_regclass({table_literal}) is not null,
       pg_catalog.current_setting('server_encoding')
