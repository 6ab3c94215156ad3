-- A database in a file, with a journal, an index and a view; and one in memory.
.bail on
create table words (id integer primary key, word text, weight real);
with recursive n(i) as (select 1 union all select i + 1 from n where i < 20000)
insert into words select i, printf('word%05d', i * 7919 % 20011), i / 7.0 from n;
create index by_word on words (word);
begin;
update words set weight = weight * 2 where id % 3 = 0;
rollback;
select count(*), round(sum(weight), 3), min(word), max(word) from words;
create view heavy as select word from words where weight > 2800 order by word;
select count(*), group_concat(substr(word, 6), ' ') from (select word from heavy limit 12);
delete from words where id % 2 = 1;
vacuum;
select count(*), page_count from words, pragma_page_count() group by page_count;
pragma integrity_check;
pragma journal_mode = wal;
attach ':memory:' as other;
create table other.copy as select * from words;
select sum(a.id = b.id), count(*) from words a join other.copy b using (word);
select hex(zeroblob(4)), json_extract('{"a":[1,2,{"b":3}]}', '$.a[2].b'), 0.1 + 0.2;
select strftime('%Y-%m-%d', 86400 * 365, 'unixepoch');
