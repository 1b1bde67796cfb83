package inbox

import (
	"encoding/binary"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
	"github.com/skein-feed/skein/projections/inbox/internal/inboxcache"
)

// Entries returns the number of entries in the inbox of a reader, which is in memory.
func Entries(v *projections.View, reader string) (n int) {
	c, ok := v.QueryCache().(*inboxcache.Cache)
	if !ok {
		return 0
	}
	list, _ := c.ReadInbox(events.AppendID(nil, reader), v.Version())
	for _, more := list.Next(); more; _, more = list.Next() {
		n++
	}
	return n
}

// CachedOver returns queries as [CachedQuery] does, which read another state instead of the view.
func CachedOver(r State, v *projections.View) *Queries {
	q := CachedQuery(v)
	q.state = r
	return q
}

// TrendingCursorOfV01 returns the cursor that v0.1 made for the page behind a pin without a score,
// in a session by heat that began at a position.
func TrendingCursorOfV01(began events.Cursor, owner, pin string, created events.Micros) PageCursor {
	cursor := binary.AppendUvarint(PageCursor{cursorTrendingV01}, began.Seq)
	cursor = binary.AppendUvarint(cursor, uint64(began.LastTime))
	cursor = append(cursor, make([]byte, 9)...) // there is no score
	return append(cursor, sortKeyOf(created, owner, pin)...)
}
