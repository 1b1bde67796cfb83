package conformance

import "github.com/skein-feed/skein/projections"

// TagRange describes the tags of the rows of one projection. It is one line of the table of key
// prefixes in projections/keys.go.
type TagRange struct {
	First, Last projections.Tag
	// Embeds is the name of another projection that this one folds into its own store, under the
	// tags of that projection. Empty means none.
	Embeds string
	// Hashed has the tags of rows whose key does not name a user or item behind the tag. It has a
	// hash there, or nothing if the home is a partition.
	Hashed []projections.Tag
	// MonthKeyed has the tags of rows that have a month before the tag and the shard behind it.
	MonthKeyed []projections.Tag
	// Remote has the tags of rows of a whole partition ([projections.AppendPartition]), in which
	// another id comes before that of the home.
	Remote []projections.Tag
}

// tagRanges has the tags of each projection, by its name.
var tagRanges = map[string]TagRange{
	"graph": {
		First: projections.FirstGraphTag, Last: projections.LastGraphTag, Hashed: []projections.Tag{0x22, 0x23},
		Remote: []projections.Tag{0x25, 0x26},
	},
	"inbox": {First: projections.FirstInboxTag, Last: projections.LastInboxTag, Embeds: "graph"},
	"seen": {
		First: projections.FirstSeenTag, Last: projections.LastSeenTag, Hashed: []projections.Tag{0x63, 0x64},
		MonthKeyed: []projections.Tag{0x60, 0x61},
	},
	"counters": {
		First: projections.FirstCountersTag, Last: projections.LastCountersTag,
		Hashed: []projections.Tag{0x7c, 0x7d}, Remote: []projections.Tag{0x75},
	},
	"notifications": {
		First: projections.FirstNotificationsTag, Last: projections.LastNotificationsTag, Remote: []projections.Tag{0x90},
	},
}

// has reports whether the tag belongs to the projection.
func (r TagRange) has(tag projections.Tag) bool { return tag >= r.First && tag <= r.Last }
