package graph

import (
	"encoding/hex"
	"testing"

	"pgregory.net/rapid"
)

// TestGoldenRows pins the values on disk: a change needs a raised Version and a rebuild.
func TestGoldenRows(t *testing.T) {
	const at = factOrder(1_700_000_000_000_001)
	for _, c := range []struct {
		name string
		row  []byte
		want string
	}{
		{"live follow", (&edge{followLive: at | liveOrder}).append(nil), "018180f9c0c1c48203"},
		{"backfilled follow", (&edge{followBackfill: at}).append(nil), "048180f9c0c1c48203"},
		{"implicit", (&edge{implicit: at, boards: true}).append(nil), "908001" + "8180f9c0c1c48203"},
		{"blocked by", (&edge{unfollowLive: at | liveOrder, blockedBy: standing{on: at | liveOrder}}).append(nil), "8210" + "8180f9c0c1c48203" + "8180f9c0c1c48203"},
		{"block and mute", (&edge{
			block: standing{on: at | liveOrder, off: 2 | liveOrder, backfill: 3},
			mute:  standing{on: 4 | liveOrder, off: 5 | liveOrder, backfill: 6},
		}).append(nil), "e00f" + "8180f9c0c1c48203" + "0203040506"},
		{"hidden re-pins", (&edge{
			followLive: 8 | liveOrder, repins: standing{on: 9 | liveOrder, off: 10 | liveOrder, backfill: 11},
		}).append(nil), "818002" + "08" + "07090a0b"},
		{"board edge", (&boardEdge{followLive: 1 | liveOrder, unfollowLive: 2 | liveOrder, followBackfill: 3, unfollowBackfill: 4}).append(nil), "0f01020304"},
		{"board", (&board{createdLive: 7 | liveOrder}).append(nil), "0107"},
		{"titled board", (&board{createdLive: 7 | liveOrder, titled: 7 | liveOrder, title: "Cats"}).append(nil), "0d0707" + "0443617473"},
		{"board titled by a backfill", (&board{createdBackfill: 7, titled: 7, title: "a", titleEncoded: "\x12\x01a"}).append(nil), "060707" + "0161" + "120161"},
		{"counts", appendCounts(nil, (&userRow{UserCounts: UserCounts{Following: 1, Boards: 300}}).fields()), "01000000ac02"},
		{"counts of many", appendCounts(nil, (&userRow{UserCounts: UserCounts{Following: 1}, others: 300, kept: 1}).fields()), "010000000000000000ac0201"},
	} {
		if got := hex.EncodeToString(c.row); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
}

func drawOrder(t *rapid.T, live bool, name string) factOrder {
	s := factOrder(rapid.Uint64Range(0, 1<<51).Draw(t, name))
	if s != 0 && live {
		s |= liveOrder
	}
	return s
}

func TestRowsRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var e, e2 edge
		for i, s := range e.orders() {
			*s = drawOrder(t, liveOrders>>i&1 == 1, "factOrder")
		}
		e.boards = rapid.Bool().Draw(t, "boards")
		for i, s := range e.repins.orders() {
			*s = drawOrder(t, i < 2, "re-pins")
		}
		if err := e2.decode(e.append(nil)); err != nil || e2 != e {
			t.Fatalf("edge %+v became %+v: %v", e, e2, err)
		}
		b := board{
			createdLive: drawOrder(t, true, "created"), createdBackfill: drawOrder(t, false, "backfill"),
			titled: drawOrder(t, rapid.Bool().Draw(t, "live"), "titled"),
		}
		if b.titled != 0 {
			b.title, b.titleEncoded = rapid.String().Draw(t, "title"), rapid.String().Draw(t, "encoded")
		}
		var b2 board
		if err := b2.decode(b.append(nil)); err != nil || b2 != b {
			t.Fatalf("board %+v became %+v: %v", b, b2, err)
		}
	})
}

// FuzzRows: no bytes on disk make a decoder panic, and what it accepts it would write again.
func FuzzRows(f *testing.F) {
	f.Add([]byte{1, 0x81, 0x80})
	f.Add((&board{titled: 7, title: "x"}).append(nil))
	f.Fuzz(func(t *testing.T, row []byte) {
		var e edge
		if e.decode(row) == nil {
			var again edge
			if err := again.decode(e.append(nil)); err != nil || again != e {
				t.Fatalf("edge %x: %+v became %+v: %v", row, e, again, err)
			}
		}
		var b board
		if b.decode(row) == nil {
			var again board
			if err := again.decode(b.append(nil)); err != nil || again != b {
				t.Fatalf("board %x: %+v became %+v: %v", row, b, again, err)
			}
		}
		var be boardEdge
		_ = be.decode(row)
		_ = decodeCounts(row, new(userRow).fields())
	})
}
