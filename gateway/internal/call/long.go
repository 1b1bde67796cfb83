package call

import "context"

// MaxShortPage is the largest size at which a page does not count as long.
const MaxShortPage = defaultPageSize

// ReserveLongPage waits for a place in LongPages if a page with so many entries is long. A method
// must call it after it has opened its views, and must not wait for anything else until
// [Info.ReleaseLongPage] gives the place back. Otherwise calls that wait for a position could
// occupy all places.
func (i *Info) ReserveLongPage(ctx context.Context, entries int) error {
	if entries <= MaxShortPage || i.LongPages == nil || i.holdsLongPage {
		return nil
	}
	if err := i.LongPages.Wait(ctx); err != nil {
		return err
	}
	i.holdsLongPage = true
	return nil
}

// ReleaseLongPage gives back the place of a long page, if the call holds one. It is called when the
// answer was counted as memory, or dropped.
func (i *Info) ReleaseLongPage() {
	if i.holdsLongPage {
		i.LongPages.Done()
		i.holdsLongPage = false
	}
}
