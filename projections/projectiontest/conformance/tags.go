package conformance

import "github.com/skein-feed/skein/projections"

// TagRange is a line of the table of key prefixes.
type TagRange struct {
	First, Last projections.Tag
	// Embeds names the projection whose rows stand in the same store, under its own tags.
	Embeds string
	// Hashed are tags of rows that name no user or item: a hash follows, not an id, or nothing, where a partition is the home.
	Hashed []projections.Tag
	// Dated are tags of rows that have a month before the tag and the shard behind it.
	Dated []projections.Tag
	// Remote are tags of rows of a whole partition ([projections.AppendPartition]): another id comes before that of the home.
	Remote []projections.Tag
}

// tagRanges has the projections of the list by name.
var tagRanges = map[string]TagRange{
	"graph": {
		First: projections.FirstGraphTag, Last: projections.LastGraphTag, Hashed: []projections.Tag{0x22, 0x23},
		Remote: []projections.Tag{0x25, 0x26},
	},
	"inbox": {First: projections.FirstInboxTag, Last: projections.LastInboxTag, Embeds: "graph"},
	"seen": {
		First: projections.FirstSeenTag, Last: projections.LastSeenTag, Hashed: []projections.Tag{0x63, 0x64},
		Dated: []projections.Tag{0x60, 0x61},
	},
	"counters": {
		First: projections.FirstCountersTag, Last: projections.LastCountersTag,
		Hashed: []projections.Tag{0x7c, 0x7d}, Remote: []projections.Tag{0x75},
	},
}

func (r TagRange) has(tag projections.Tag) bool { return tag >= r.First && tag <= r.Last }
