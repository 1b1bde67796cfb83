package conformance

import "github.com/skein-feed/skein/projections"

// TagRange is a line of the table of key prefixes.
type TagRange struct {
	First, Last projections.Tag
	// Embeds names the projection whose rows stand in the same store, under its own tags.
	Embeds string
	// Hashed are tags of rows that must not name what they are about: a hash follows, not an id.
	Hashed []projections.Tag
}

// tagRanges has the projections of the list by name.
var tagRanges = map[string]TagRange{
	"graph": {First: projections.FirstGraphTag, Last: projections.LastGraphTag, Hashed: []projections.Tag{0x22}},
	"inbox": {First: projections.FirstInboxTag, Last: projections.LastInboxTag, Embeds: "graph"},
}

func (r TagRange) has(tag projections.Tag) bool { return tag >= r.First && tag <= r.Last }
