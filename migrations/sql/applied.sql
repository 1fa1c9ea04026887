-- What has been applied, by version: version, checksum.
select version, checksum from {schema}.schema_migrations order by version
