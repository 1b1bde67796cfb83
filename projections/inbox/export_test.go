package inbox

import (
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
