package graph

import (
	"bytes"
	"encoding/hex"
	"errors"
	"testing"

	"pgregory.net/rapid"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
)

// TestRowEncodingIsPinned demands that the values on disk do not change. If this test must change,
// so must Version, and stores are rebuilt.
func TestRowEncodingIsPinned(t *testing.T) {
	const at = factOrder(1_700_000_000_000_001)
	for _, c := range []struct {
		name string
		row  []byte
		want string
	}{
		{"live follow", (&edge{followLive: at | liveBit}).appendRow(nil), "018180f9c0c1c48203"},
		{"backfilled follow", (&edge{followBackfill: at}).appendRow(nil), "048180f9c0c1c48203"},
		{
			"implicit",
			(&edge{implicitSince: at, mayHaveBoardEdges: true}).appendRow(nil),
			"908001" + "8180f9c0c1c48203",
		},
		{
			"blocked by",
			(&edge{unfollowLive: at | liveBit, blockedBy: toggle{liveBegin: at | liveBit}}).appendRow(nil),
			"8210" + "8180f9c0c1c48203" + "8180f9c0c1c48203",
		},
		{"block and mute", (&edge{
			block: toggle{liveBegin: at | liveBit, liveEnd: 2 | liveBit, backfillBegin: 3},
			mute:  muteFacts{toggle: toggle{liveBegin: 4 | liveBit, liveEnd: 5 | liveBit, backfillBegin: 6}},
		}).appendRow(nil), "e00f" + "8180f9c0c1c48203" + "0203040506"},
		{"live settings", (&edge{
			followLive: 8 | liveBit, settings: settingsFact{order: 300 | liveBit, settings: events.AllFollowSettings},
		}).appendRow(nil), "818002" + "08" + "0fac02"},
		{
			"backfilled settings, all off",
			(&edge{followLive: 8 | liveBit, settings: settingsFact{order: 9}}).appendRow(nil),
			"818002" + "08" + "0009",
		},
		{"mutes with an end", (&edge{
			mute: muteFacts{toggle: toggle{liveBegin: 4 | liveBit, backfillBegin: 6}, liveUntil: 300, backfillUntil: 7},
		}).appendRow(nil), "808a04" + "0406" + "ac0207"},
		{
			"board edge",
			(&boardEdge{
				followLive: 1 | liveBit, unfollowLive: 2 | liveBit, followBackfill: 3, unfollowBackfill: 4,
			}).appendRow(nil),
			"0f01020304",
		},
		{"board", (&boardRow{createdLive: 7 | liveBit}).appendRow(nil), "0107"},
		{
			"titled board",
			(&boardRow{createdLive: 7 | liveBit, titleOrder: 7 | liveBit, title: "Cats"}).appendRow(nil),
			"0d0707" + "0443617473",
		},
		{
			"board titled by a backfill",
			(&boardRow{createdBackfill: 7, titleOrder: 7, title: "a", titleEventBytes: "\x12\x01a"}).appendRow(nil),
			"060707" + "0161" + "120161",
		},
		{
			"counts",
			appendCounts(nil, (&userCountsRow{UserCounts: UserCounts{Following: 1, Boards: 300}}).fields()),
			"01000000ac02",
		},
		{
			"counts of many",
			appendCounts(nil, (&userCountsRow{
				UserCounts: UserCounts{Following: 1}, unlistedEdges: 300, followingStored: 1,
			}).fields()),
			"010000000000000000ac0200000001",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := hex.EncodeToString(c.row); got != c.want {
				t.Errorf("row %s, want %s", got, c.want)
			}
		})
	}
}

// drawOrder draws the order of a live or a backfilled fact, or 0.
func drawOrder(t *rapid.T, live bool, name string) factOrder {
	order := factOrder(rapid.Uint64Range(0, 1<<51).Draw(t, name))
	if order != 0 && live {
		order |= liveBit
	}
	return order
}

// TestRowsDecodeToWhatWasEncoded demands that every edge and every board has an encoding that
// decodes to the same facts.
func TestRowsDecodeToWhatWasEncoded(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var e, decodedEdge edge
		for i, order := range e.orderFields() {
			*order = drawOrder(t, edgeLiveFields>>i&1 == 1, "factOrder")
		}
		e.mayHaveBoardEdges = rapid.Bool().Draw(t, "boards")
		e.settings.order = drawOrder(t, rapid.Bool().Draw(t, "live"), "settings order")
		if e.settings.order != 0 {
			settings := rapid.ByteMax(byte(events.AllFollowSettings)).Draw(t, "settings")
			e.settings.settings = events.FollowSettings(settings)
		}
		e.mute.liveUntil = events.Micros(rapid.Int64Range(0, 1<<51).Draw(t, "live until"))
		e.mute.backfillUntil = events.Micros(rapid.Int64Range(0, 1<<51).Draw(t, "backfill until"))
		if err := decodedEdge.decodeRow(e.appendRow(nil)); err != nil || decodedEdge != e {
			t.Fatalf("edge decodes to %+v, want %+v: %v", decodedEdge, e, err)
		}

		b := boardRow{
			createdLive: drawOrder(t, true, "created"), createdBackfill: drawOrder(t, false, "backfill"),
			titleOrder: drawOrder(t, rapid.Bool().Draw(t, "live"), "titled"),
		}
		if b.titleOrder != 0 {
			b.title = rapid.String().Draw(t, "title")
			b.titleEventBytes = rapid.String().Draw(t, "encoded")
		}
		var decodedBoard boardRow
		if err := decodedBoard.decodeRow(b.appendRow(nil)); err != nil || decodedBoard != b {
			t.Fatalf("board decodes to %+v, want %+v: %v", decodedBoard, b, err)
		}
	})
}

// TestRowsThatNoFoldWritesAreRefused demands an error for numbers that are not in their shortest form
// and for counts with a zero at the end. Stores are compared byte by byte (I13), so each row has one
// encoding only.
func TestRowsThatNoFoldWritesAreRefused(t *testing.T) {
	for _, c := range []struct {
		name   string
		row    string
		decode func(row []byte) error
	}{
		{"flags of an edge", "8100" + "07", new(edge).decodeRow},
		{"order of an edge", "01" + "8700", new(edge).decodeRow},
		{"order of settings", "818002" + "08" + "0f8900", new(edge).decodeRow},
		{"end of a live mute", "808a04" + "0406" + "870007", new(edge).decodeRow},
		{"end of a backfilled mute", "808a04" + "0406" + "078700", new(edge).decodeRow},
		{"flags of a board edge", "8100" + "07", new(boardEdge).decodeRow},
		{"order of a board edge", "01" + "8700", new(boardEdge).decodeRow},
		{"flags of a board", "8100" + "07", new(boardRow).decodeRow},
		{"length of a title", "0d0707" + "840043617473", new(boardRow).decodeRow},
		{"count", "018000", decodeUserCounts},
		{"zero count at the end", "010200", decodeUserCounts},
	} {
		t.Run(c.name, func(t *testing.T) {
			row, err := hex.DecodeString(c.row)
			if err != nil {
				t.Fatal(err)
			}
			if err := c.decode(row); !errors.Is(err, projections.ErrCorrupt) {
				t.Errorf("row %s: got error %v, want %v", c.row, err, projections.ErrCorrupt)
			}
		})
	}
}

func decodeUserCounts(row []byte) error { return decodeCounts(row, new(userCountsRow).fields()) }

// FuzzRows shows that no bytes on disk make a decoder panic, and that a decoder accepts only what
// the encoder writes.
func FuzzRows(f *testing.F) {
	f.Add([]byte{1, 0x81, 0x80})
	f.Add((&boardRow{titleOrder: 7, title: "x"}).appendRow(nil))
	f.Fuzz(func(t *testing.T, row []byte) {
		var e edge
		if e.decodeRow(row) == nil && !bytes.Equal(e.appendRow(nil), row) {
			t.Errorf("edge %x decodes to %+v, which is encoded as %x", row, e, e.appendRow(nil))
		}
		var b boardRow
		if b.decodeRow(row) == nil && !bytes.Equal(b.appendRow(nil), row) {
			t.Errorf("board %x decodes to %+v, which is encoded as %x", row, b, b.appendRow(nil))
		}
		var facts boardEdge
		if facts.decodeRow(row) == nil && !bytes.Equal(facts.appendRow(nil), row) {
			t.Errorf("board edge %x decodes to %+v, which is encoded as %x", row, facts, facts.appendRow(nil))
		}
		var counts userCountsRow
		if decodeCounts(row, counts.fields()) == nil && !bytes.Equal(appendCounts(nil, counts.fields()), row) {
			t.Errorf("counts %x decode to %+v, which are encoded as %x", row, counts, appendCounts(nil, counts.fields()))
		}
	})
}
