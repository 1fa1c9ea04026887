insert into {schema}.schema_migrations (version, name, checksum) values ({version}, '{name}', '{checksum}')
