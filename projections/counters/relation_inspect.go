package counters

import (
	"strings"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
)

// relationForms describe the rows about relations.
var relationForms = map[projections.Tag]projections.RowForm{
	tagUserRelations:  {Name: "user-relations", Parts: "A", Value: describeUser},
	tagBoardRelations: {Name: "board-relations", Parts: "B b", Value: describeBoard},
	tagPair:           {Name: "pair", Parts: "A B", Value: describePair},
	tagFollower:       {Name: "pair-of", Parts: "B A"},
	tagEdge:           {Name: "edge", Parts: "A B b", Value: describeEdge},
	tagFollowed:       {Name: "edge-follows", Parts: "A B rank b", Special: relationParts},
	tagUnfollowed:     {Name: "edge-unfollows", Parts: "A B rank b", Special: relationParts},
	tagBoardEdge:      {Name: "edge-of", Parts: "B b A"},
	tagTombstone:      {Name: "tombstone", Parts: "hash"},
}

// relationParts are the parts of keys that only rows about relations have.
var relationParts = map[string]func(d *projections.Description) error{"rank": describeRank}

func describeRank(d *projections.Description) error {
	b, err := d.Cut(8)
	if err != nil {
		return err
	}
	at, _, err := cutRank(b)
	if err == nil {
		writeRank(d, "fact", at)
	}
	return err
}

// writeRank writes the fact that has a rank.
func writeRank(d *projections.Description, name string, at rank) {
	what := []string{"imported", "follow"}
	if at.live() {
		what[0] = "live"
	}
	if at.removes() {
		what[1] = "unfollow"
	}
	d.Field(name, strings.Join(what, "-"))
	d.Time("at", events.Micros((at&^liveRank)>>1)-1)
}

func describeUser(d *projections.Description, row []byte) error {
	var t userTally
	if err := readCounts(row, t[:]); err != nil {
		return err
	}
	writeCounts(d, t[:], "following", "following-implicit", "followers", "followers-implicit", "boards", "followed-boards",
		"excluded-boards")
	return nil
}

// writeCounts writes the counts that are not zero.
func writeCounts(d *projections.Description, counts []int64, names ...string) {
	for i, n := range counts {
		if n != 0 {
			d.Int(names[i], n)
		}
	}
}

func describeBoard(d *projections.Description, row []byte) error {
	r, err := decodeBoard(row, d.ID)
	if err != nil {
		return err
	}
	d.Flag([...]string{"default", "lives", "deleted", "lives-again"}[r.state], true)
	writeCounts(d, r.boardTally[:], "followers", "excluders", "not-of-owner")
	return nil
}

func describePair(d *projections.Description, row []byte) error {
	r, err := decodePair(row)
	if err != nil {
		return err
	}
	if r.followed != 0 {
		writeRank(d, "followed", r.followed)
	}
	if r.unfollowed != 0 {
		writeRank(d, "unfollowed", r.unfollowed)
	}
	for _, b := range []struct {
		name string
		is   block
	}{{"blocks", r.mine}, {"blocked-by", r.theirs}} {
		if b.is != blockNone {
			d.Field(b.name, [...]string{blockImported: "imported", blockLive: "live", blockEnded: "ended"}[b.is])
		}
	}
	writeCounts(d, []int64{r.edges, r.follows}, "edges", "followed-boards")
	return nil
}

func describeEdge(d *projections.Description, row []byte) error {
	at, err := decodeEdge(row)
	if err == nil {
		writeRank(d, "fact", at)
	}
	return err
}
