-- placeholder: sql-cold fills it
select 1
