create table {schema}.schema_migrations (
  version    int primary key,
  name       text not null,
  checksum   text not null,
  applied_at timestamptz not null default now()
)
