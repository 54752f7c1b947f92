"""Functions whose name or meaning differs between PostgreSQL and DuckDB. What is not here goes to DuckDB as it is."""

import re

REFUSED = re.compile(
    r"duckdb_\w+|pragma_\w+|read_\w+|write_\w+|parquet_\w+|query|query_table|getvariable|getenv|glob|sniff_csv|"
    r"current_setting|set_config|nextval|currval|setseed|in_search_path|txid_current|force_checkpoint|enable_\w+|disable_\w+|"
    r"f1_\w+|add_\w+|copy_\w+|checkpoint|stats|which_secret|test_\w+|icu_\w+_\w+|repeat_row|arrow_\w+|pandas_\w+|python_\w+|"
    r"json_execute_serialized_sql|json_serialize_\w+|json_deserialize_sql|from_substrait\w*|get_substrait\w*|sql_auto_complete|"
    r"is_histogram_other_bin|create_sort_key|remap_struct|invoke|\w+_from_file|file_\w+|load_\w+|lo_\w+|pg_\w+"
)
"""Functions that look outside the query: files, settings, other catalogs. They do not exist for users."""

RENAMED: dict[str, str] = {
    "btrim": "trim",
    "every": "bool_and",
    "char_length": "length",
    "character_length": "length",
    "jsonb_typeof": "json_type",
    "json_typeof": "json_type",
    "jsonb_array_length": "json_array_length",
    "jsonb_object_keys": "json_keys",
    "json_agg": "json_group_array",
    "jsonb_agg": "json_group_array",
    "json_object_agg": "json_group_object",
    "to_jsonb": "to_json",
    "array_to_string": "f1_array_to_string",
    "string_to_array": "string_split",
    "regexp_split_to_array": "string_split_regex",
    "octet_length": "f1_octet_length",
    "substr": "f1_substr",
    "substring": "f1_substr",
    "lpad": "f1_lpad",
    "rpad": "f1_rpad",
    "chr": "f1_chr",
    "round": "f1_round",
    "trunc": "f1_trunc",
    "initcap": "f1_initcap",
    "to_hex": "f1_to_hex",
    "div": "f1_div",
    "date": "f1_date",
    "gen_random_uuid": "uuid",
    "quote_literal": "f1_quote_literal",
    "sha256": "f1_sha256",
    "regexp_like": "regexp_matches",
    "json_build_object": "json_object",
    "jsonb_build_object": "json_object",
    "json_build_array": "json_array",
    "row_to_json": "to_json",
    "version": "f1_version",
    "current_schema": "f1_current_schema",
    "ceiling": "ceil",
    "log": "f1_log",
    "decode": "f1_decode",
    "like": "f1_like",
    "ilike": "f1_ilike",
    "regexp_count": "f1_regexp_count",
    "regexp_instr": "f1_regexp_instr",
}
"""Lower-case names and what DuckDB calls them."""

_FORMATS = (
    ("YYYY", "%Y"),
    ("YY", "%y"),
    ("Month", "%B"),
    ("Mon", "%b"),
    ("MM", "%m"),
    ("DDD", "%j"),
    ("DD", "%d"),
    ("Day", "%A"),
    ("Dy", "%a"),
    ("HH24", "%H"),
    ("HH12", "%I"),
    ("HH", "%I"),
    ("MI", "%M"),
    ("SS", "%S"),
    ("MS", "%g"),
    ("US", "%f"),
    ("AM", "%p"),
    ("PM", "%p"),
)


_FORMAT = re.compile("|".join(sorted((postgres for postgres, _ in _FORMATS), key=len, reverse=True)), re.IGNORECASE)


def time_format(postgres: str) -> str:
    """Turn a format of PostgreSQL's to_char and to_date into one of strftime."""
    known = {name.upper(): strftime for name, strftime in _FORMATS}
    return _FORMAT.sub(lambda match: known[match[0].upper()], postgres.replace("%", "%%").replace('"', ""))


_START = "(CASE WHEN a < 1 THEN 1 ELSE a END)::BIGINT"
_LENGTH = "(CASE WHEN a < 1 THEN greatest(a + n - 1, 0) WHEN n > 4294967295 THEN 4294967295 ELSE n END)::BIGINT"

MACROS: tuple[str, ...] = (
    "f1_octet_length(s) AS octet_length(CASE WHEN typeof(s) = 'BLOB' THEN s::BLOB ELSE encode(s::VARCHAR) END)",
    f"f1_substr(s, a) AS substring(s, {_START}), (s, a, n) AS CASE WHEN n < 0 THEN "
    f"error('negative substring length not allowed') ELSE substring(s, {_START}, {_LENGTH}) END",
    "f1_lpad(s, n) AS lpad(s, n::INTEGER, ' '), "
    "(s, n, f) AS CASE WHEN f = '' THEN left(s, n) ELSE lpad(s, n::INTEGER, f) END",
    "f1_rpad(s, n) AS rpad(s, n::INTEGER, ' '), "
    "(s, n, f) AS CASE WHEN f = '' THEN left(s, n) ELSE rpad(s, n::INTEGER, f) END",
    "f1_chr(n) AS chr(n::INTEGER)",
    "f1_round(x) AS round(x), (x, n) AS round(x, n::INTEGER)",
    "f1_trunc(x) AS trunc(x), (x, n) AS trunc(x, n::INTEGER)",
    "f1_initcap(s) AS CASE WHEN s = '' THEN s ELSE list_aggregate(list_transform(regexp_extract_all(s, "
    "'[[:alnum:]]+|[^[:alnum:]]+'), lambda w: upper(w[1]) || lower(w[2:])), 'string_agg', '') END",
    "f1_to_hex(n) AS lower(to_hex(n))",
    "f1_div(a, b) AS trunc(a / b)",
    "f1_date(t) AS CAST(t AS DATE)",
    "f1_array_to_string(l, d) AS array_to_string(l, d)",
    "f1_quote_literal(s) AS '''' || replace(s::VARCHAR, '''', '''''') || ''''",
    "f1_sha256(s) AS unhex(sha256(s))",
    "f1_numeric_text(x) AS "
    "CASE WHEN contains(x::VARCHAR, '.') THEN rtrim(rtrim(x::VARCHAR, '0'), '.') ELSE x::VARCHAR END",
    "f1_double_text(x) AS CASE WHEN isnan(x) THEN 'NaN' "
    "WHEN isinf(x) THEN CASE WHEN x > 0 THEN 'Infinity' ELSE '-Infinity' END"
    " ELSE regexp_replace(x::VARCHAR, '\\.0$', '') END",
    "f1_bool(s) AS CASE lower(trim(s)) WHEN 'on' THEN true WHEN 'off' THEN false ELSE s::BOOLEAN END",
    "f1_to_bytes(s) AS CASE WHEN s[1:2] = '\\x' THEN unhex(s[3:]) ELSE encode(s) END",
    "f1_version() AS 'PostgreSQL-compatible F1'",
    "f1_current_schema() AS 'public'",
    "f1_encode(s, f) AS CASE lower(f) WHEN 'base64' THEN to_base64(encode(s)) WHEN 'hex' THEN lower(hex(encode(s))) "
    "ELSE error('encode knows base64 and hex') END",
    "f1_encode_bytes(s, f) AS CASE lower(f) WHEN 'base64' THEN to_base64(s) WHEN 'hex' THEN lower(hex(s)) "
    "ELSE error('encode knows base64 and hex') END",
    "f1_decode(s, f) AS CASE lower(f) WHEN 'base64' THEN from_base64(s) WHEN 'hex' THEN unhex(s) "
    "ELSE error('decode knows base64 and hex') END",
    "f1_like(s, p) AS s LIKE p ESCAPE '\\'",
    "f1_ilike(s, p) AS s ILIKE p ESCAPE '\\'",
    "f1_regexp_count(s, p) AS len(regexp_extract_all(s, p)), "
    "(s, p, a) AS len(regexp_extract_all(s[a:], p)), (s, p, a, f) AS len(regexp_extract_all(s[a:], p, 0, f))",
    "f1_regexp_instr(s, p) AS CASE WHEN regexp_matches(s, p) THEN "
    "length(regexp_extract(s, '(?s)^(.*?)(?:' || p || ')', 1)) + 1 WHEN s IS NULL OR p IS NULL THEN NULL ELSE 0 END",
    "f1_log(x) AS log(x), (b, x) AS log(b, x)",
)
"""Macros that every DuckDB connection of ours has: what follows CREATE MACRO."""
