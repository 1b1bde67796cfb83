// Package export writes the rows of a projection, or the events of the log, for analysis. It writes
// NDJSON or Parquet.
//
//	store at one position ──► View ──► projections.Description ──► rows    ─┐
//	                                                                      ├─► NDJSON: one object per line
//	archive and stream ──► Hub ──► events.Event ─┐                        │   Parquet: row groups of bounded size
//	a running service  ──► Watch ──► FromProto ──┴──────────────► events ─┘   ──► File: renamed when complete
//
// An export of rows has the same fields as `skein inspect`, because both use
// [projections.Description]. All rows are of one position. If a row cannot be decoded, the export
// fails. Rows are read from a store that does not serve: a restored snapshot, or the data directory
// of a service that is not running.
//
// Memory is bounded by the size of a row group. A [File] appears under its name completely, or not
// at all.
package export
