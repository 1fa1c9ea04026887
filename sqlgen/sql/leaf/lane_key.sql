-- placeholder
select 1
