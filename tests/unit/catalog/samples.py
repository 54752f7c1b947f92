"""Schemas that several tests use."""

import itertools

from f1server.catalog.compile import compile_sources, compile_statements
from f1server.catalog.ddl import parse_ddl

PROTO = """
syntax = "proto3";
package adwords;
enum Kind { UNKNOWN = 0; BUYER = 1; }
message Feature { string name = 1; map<string, int32> weights = 2; }
message CustomerInfo {
  string country_code = 1;
  repeated int64 ids = 2;
  Feature main = 3;
  Kind kind = 4;
  repeated Feature features = 5;
  uint64 big = 6;
}
"""
PROTOS = [("adwords.proto", PROTO)]

ADWORDS = """
CREATE TABLE Customer (CustomerId INT64 NOT NULL, Name STRING, Info PROTO<adwords.CustomerInfo>,
  PRIMARY KEY (CustomerId));
CREATE TABLE Campaign (
  CustomerId INT64 NOT NULL,
  CampaignId INT64 NOT NULL,
  Budget NUMERIC DEFAULT -1.5 NOT NULL,
  Name VARCHAR(40) UNIQUE,
  Created TIMESTAMP DEFAULT now() NOT TRACKED,
  KeywordId INT64 REFERENCES Keyword,
  LOCK BudgetLock (Budget),
  CONSTRAINT Positive CHECK (Budget >= -2 AND Campaign.Name <> ''),
  PRIMARY KEY (CustomerId, CampaignId)
) INTERLEAVE IN PARENT Customer ON DELETE CASCADE;
CREATE LOCAL INDEX CampaignByName ON Campaign (CustomerId, Name) STORING (Budget);
CREATE INDEX CustomerByCountry ON Customer (Info.country_code, Info.features.name);
CREATE TABLE Keyword (KeywordId INT64 PRIMARY KEY, Text STRING DEFAULT 'a''b');
CREATE TABLE Click (CustomerId INT64, Url TEXT) INTERLEAVE IN PARENT Customer WITH (change_history = false);
CREATE VIEW Words AS SELECT KeywordId, Text FROM Keyword WHERE Text <> ';';
"""


def ids(first=1):
    counter = itertools.count(first)
    return lambda: next(counter)


def adwords():
    return compile_sources("ads", parse_ddl(ADWORDS), PROTOS, ids())


def after(schema, sql, first=1000):
    return compile_statements(schema, parse_ddl(sql), ids(first))
