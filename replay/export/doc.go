// Package export writes the rows of a projection, or the events of the log, for analysis: as NDJSON or as Parquet.
//
//	store at one position ──► View ──► projections.Description ──► rows    ─┐
//	                                                                      ├─► NDJSON: one object a line
//	archive and stream ──► Hub ──► events.Event ─┐                        │   Parquet: row groups of bounded size
//	a running service  ──► Watch ──► FromProto ──┴──────────────► events ─┘   ──► File: renamed when whole
//
// An export of rows has the same fields as `skein inspect`: both use one [projections.Description]. All rows are of one
// position. A row that no fold writes ends the export with an error. Rows are read from a store that does not serve: a restored
// snapshot, or the data directory of a service that is not running.
//
// Memory is bounded by the size of a row group. A [File] appears under its name complete, or not at all.
package export
