-- The schema of TPC-H (revision 3, section 1.4), flat: every table is a root, and foreign keys tie them together.

CREATE TABLE region (
  r_regionkey INT64 NOT NULL,
  r_name STRING NOT NULL,
  r_comment STRING,
  PRIMARY KEY (r_regionkey)
);

CREATE TABLE nation (
  n_nationkey INT64 NOT NULL,
  n_name STRING NOT NULL,
  n_regionkey INT64 NOT NULL REFERENCES region (r_regionkey),
  n_comment STRING,
  PRIMARY KEY (n_nationkey)
);

CREATE TABLE supplier (
  s_suppkey INT64 NOT NULL,
  s_name STRING NOT NULL,
  s_address STRING NOT NULL,
  s_nationkey INT64 NOT NULL REFERENCES nation (n_nationkey),
  s_phone STRING NOT NULL,
  s_acctbal NUMERIC NOT NULL,
  s_comment STRING NOT NULL,
  PRIMARY KEY (s_suppkey)
);

CREATE TABLE customer (
  c_custkey INT64 NOT NULL,
  c_name STRING NOT NULL,
  c_address STRING NOT NULL,
  c_nationkey INT64 NOT NULL REFERENCES nation (n_nationkey),
  c_phone STRING NOT NULL,
  c_acctbal NUMERIC NOT NULL,
  c_mktsegment STRING NOT NULL,
  c_comment STRING NOT NULL,
  PRIMARY KEY (c_custkey)
);

CREATE TABLE part (
  p_partkey INT64 NOT NULL,
  p_name STRING NOT NULL,
  p_mfgr STRING NOT NULL,
  p_brand STRING NOT NULL,
  p_type STRING NOT NULL,
  p_size INT64 NOT NULL,
  p_container STRING NOT NULL,
  p_retailprice NUMERIC NOT NULL,
  p_comment STRING NOT NULL,
  PRIMARY KEY (p_partkey)
);

CREATE TABLE partsupp (
  ps_partkey INT64 NOT NULL,
  ps_suppkey INT64 NOT NULL,
  ps_availqty INT64 NOT NULL CHECK (ps_availqty >= 0),
  ps_supplycost NUMERIC NOT NULL CHECK (ps_supplycost >= 0),
  ps_comment STRING NOT NULL,
  PRIMARY KEY (ps_partkey, ps_suppkey),
  FOREIGN KEY (ps_partkey) REFERENCES part (p_partkey),
  FOREIGN KEY (ps_suppkey) REFERENCES supplier (s_suppkey)
) WITH (change_history = false);

CREATE TABLE orders (
  o_orderkey INT64 NOT NULL,
  o_custkey INT64 NOT NULL REFERENCES customer (c_custkey),
  o_orderstatus STRING NOT NULL,
  o_totalprice NUMERIC NOT NULL,
  o_orderdate DATE NOT NULL,
  o_orderpriority STRING NOT NULL,
  o_clerk STRING NOT NULL,
  o_shippriority INT64 NOT NULL,
  o_comment STRING NOT NULL,
  PRIMARY KEY (o_orderkey)
) WITH (change_history = false);

CREATE TABLE lineitem (
  l_orderkey INT64 NOT NULL,
  l_linenumber INT64 NOT NULL,
  l_partkey INT64 NOT NULL,
  l_suppkey INT64 NOT NULL,
  l_quantity NUMERIC NOT NULL,
  l_extendedprice NUMERIC NOT NULL,
  l_discount NUMERIC NOT NULL,
  l_tax NUMERIC NOT NULL,
  l_returnflag STRING NOT NULL,
  l_linestatus STRING NOT NULL,
  l_shipdate DATE NOT NULL,
  l_commitdate DATE NOT NULL,
  l_receiptdate DATE NOT NULL,
  l_shipinstruct STRING NOT NULL,
  l_shipmode STRING NOT NULL,
  l_comment STRING NOT NULL,
  PRIMARY KEY (l_orderkey, l_linenumber),
  FOREIGN KEY (l_orderkey) REFERENCES orders (o_orderkey)
) WITH (change_history = false);
