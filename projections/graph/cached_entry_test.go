package graph

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"strconv"
	"testing"

	"pgregory.net/rapid"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections/querycache"
)

// TestParseNumberAcceptsCanonicalNumbersOnly demands that an id is a number exactly if it is the
// text that the number is formatted as.
func TestParseNumberAcceptsCanonicalNumbersOnly(t *testing.T) {
	expectCanonical := func(t interface{ Fatalf(string, ...any) }, id string) {
		n, ok := parseNumber(id)
		want, err := strconv.ParseUint(id, 10, 64)
		wantOK := err == nil && len(id) <= maxCacheDigits && strconv.FormatUint(want, 10) == id
		if ok != wantOK || ok && n != want {
			t.Fatalf("%q: got %d, %v, want %d, %v", id, n, ok, want, wantOK)
		}
	}
	for _, id := range []string{
		"", "0", "00", "01", "9", "12345678", "99999999", "100000000", "1234567890123456789", "9999999999999999999",
		"18446744073709551615", "18446744073709551616", "1234567/", "1234567:", "/2345678", ":2345678", "1234\x005678",
		"-1234567", "+1234567", "1234567\xb0", "\xb11234567", "1 345678", "12345678901234é", "1234567890123456x",
	} {
		expectCanonical(t, id)
	}
	rapid.Check(t, func(t *rapid.T) {
		id := strconv.FormatUint(rapid.Uint64().Draw(t, "number"), 10)
		expectCanonical(t, id)
		b := []byte(id)
		b[rapid.IntRange(0, len(b)-1).Draw(t, "position")] = rapid.Byte().Draw(t, "byte")
		expectCanonical(t, string(b))
	})
}

// TestCacheEntryFillsOneCacheLine demands that an entry, with what the cache adds to it, fills one
// cache line, and is counted with its real size.
func TestCacheEntryFillsOneCacheLine(t *testing.T) {
	size := reflect.TypeFor[cacheEntry]().Size()
	if size != entryBytes || size+querycache.EntryBytes != 64 {
		t.Errorf("got an entry of %d bytes, want %d, and 64 with the %d of the cache",
			size, entryBytes, querycache.EntryBytes)
	}
}

// TestCacheEntryFindsItsEdgesOnly demands that an entry finds the edges that were added to it and
// no others, even if all hashes are equal.
func TestCacheEntryFindsItsEdgesOnly(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 3))
	for n := range 60 {
		for _, equalHashes := range []bool{false, true} {
			mustMakeID := func(id string) cacheID {
				made, ok := cacheIDOf(id, 42)
				if !ok {
					t.Fatalf("cacheIDOf(%q) is not ok, want an id", id)
				}
				if equalHashes {
					made.hash = 1<<64 - 1
				}
				return made
			}
			want := map[string]cacheValue{}
			edges := []cacheEdge(nil)
			for i := range n {
				id := strconv.Itoa(r.IntN(1000))
				if i%3 == 0 {
					id = fmt.Sprint("u", r.IntN(100))
				}
				if _, ok := want[id]; !ok {
					want[id] = cacheValue(i+1)<<cacheSinceShift | cachedExplicit
					edges = append(edges, cacheEdge{mustMakeID(id), want[id]})
				}
			}

			user := mustMakeID("me")
			entry := cacheEntry{}
			entry.fill(&user, edges)
			for i := range 1000 {
				for _, id := range []string{strconv.Itoa(i), fmt.Sprint("u", i)} {
					other := mustMakeID(id)
					if got := entry.find(&other); got != want[id] {
						t.Fatalf("value of %s: got %x, want %x", id, got, want[id])
					}
				}
			}
		}
	}
}

// TestCacheValueKeepsWhatHolds demands that a packed value says the same as the edge that it was
// made from.
func TestCacheValueKeepsWhatHolds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var e edge
		for _, s := range e.orderFields() {
			if rapid.Bool().Draw(t, "set") {
				*s = factOrder(rapid.Uint64Range(1, 1<<60).Draw(t, "factOrder"))
			}
		}
		e.mayHaveBoardEdges = rapid.Bool().Draw(t, "boards")
		e.settings.settings = events.FollowSettings(rapid.ByteMax(byte(events.AllFollowSettings)).Draw(t, "settings"))
		if e.mute.latestIsMute() && rapid.Bool().Draw(t, "ends") {
			e.mute.liveUntil = 7
			e.mute.backfillUntil = 7
		}
		v, ok := cacheValueOf(&e)
		want := e.currentFollow()
		if wantOK := want.Since <= maxCacheSince; ok != wantOK || ok && v.follow() != want {
			t.Fatalf("%+v: got the follow %+v, %v, want %+v, %v", e, v.follow(), ok, want, wantOK)
		}
		if v.has(cachedBoards) != e.mayHaveBoardEdges || v.has(cachedBlocking) != e.block.holds() ||
			v.has(cachedBlockedBy) != e.blockedBy.holds() || v.has(cachedMuting) != e.mute.endlessMute().holds ||
			v.has(cachedTimedMute) != e.mute.hasTimedEnd() ||
			v.has(cachedHidingRepins) != e.followSettings().Has(events.SettingHideRepins) ||
			v.has(cachedMoreSettings) != (e.followSettings()&^events.SettingHideRepins != 0) {
			t.Fatalf("got the flags %b, want those of the edge %+v", v, e)
		}
	})
}
