-- The AdWords schema of the F1 paper (figure 2, sections 3.1 and 8.2), as far as the paper shows it.

CREATE TABLE Customer (
  CustomerId INT64 NOT NULL,
  Name STRING NOT NULL,
  Info PROTO<adwords.CustomerInfo>,
  Whitelist PROTO<adwords.Whitelist>,
  PRIMARY KEY (CustomerId)
);

CREATE TABLE Campaign (
  CustomerId INT64 NOT NULL,
  CampaignId INT64 NOT NULL,
  Name STRING NOT NULL,
  Budget NUMERIC CHECK (Budget >= 0),
  PRIMARY KEY (CustomerId, CampaignId)
) INTERLEAVE IN PARENT Customer ON DELETE CASCADE;

CREATE TABLE AdGroup (
  CustomerId INT64 NOT NULL,
  CampaignId INT64 NOT NULL,
  AdGroupId INT64 NOT NULL,
  Name STRING NOT NULL,
  PRIMARY KEY (CustomerId, CampaignId, AdGroupId)
) INTERLEAVE IN PARENT Campaign ON DELETE CASCADE;

CREATE TABLE Creative (
  CustomerId INT64 NOT NULL,
  CreativeId INT64 NOT NULL,
  Headline STRING,
  Language STRING NOT NULL,
  PRIMARY KEY (CustomerId, CreativeId)
) INTERLEAVE IN PARENT Customer ON DELETE CASCADE;

-- Creatives are shared by ad groups: a link table.
CREATE TABLE AdGroupCreative (
  CustomerId INT64 NOT NULL,
  CampaignId INT64 NOT NULL,
  AdGroupId INT64 NOT NULL,
  CreativeId INT64 NOT NULL,
  PRIMARY KEY (CustomerId, CampaignId, AdGroupId, CreativeId)
) INTERLEAVE IN PARENT AdGroup ON DELETE CASCADE;

CREATE TABLE Keyword (
  CustomerId INT64 NOT NULL,
  CampaignId INT64 NOT NULL,
  AdGroupId INT64 NOT NULL,
  KeywordId INT64 NOT NULL,
  Text STRING NOT NULL,
  MaxCpc NUMERIC,
  PRIMARY KEY (CustomerId, CampaignId, AdGroupId, KeywordId)
) INTERLEAVE IN PARENT AdGroup ON DELETE CASCADE;

-- Clicks are facts that never change: nobody follows their history.
CREATE TABLE AdClick (
  ClickId INT64 NOT NULL,
  AdGroupId INT64 NOT NULL,
  CreativeId INT64 NOT NULL,
  Date DATE NOT NULL,
  Region STRING NOT NULL,
  Clicks INT64 NOT NULL,
  PRIMARY KEY (ClickId)
) WITH (change_history = false);

-- A local index lies with its root row, global ones are tables of their own (section 3.3).
CREATE LOCAL INDEX CampaignByName ON Campaign (CustomerId, Name);
CREATE INDEX KeywordByText ON Keyword (Text);
CREATE INDEX AdGroupCreativeByIds ON AdGroupCreative (AdGroupId, CreativeId);
CREATE INDEX CustomerByCountry ON Customer (Info.country_code);
