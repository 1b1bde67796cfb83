package call

import "context"

// ShortPage is the largest size at which a page does not count as long.
const ShortPage = defaultPageSize

// MakeLong waits for a place in LongPages if a page with so many entries is long. A method must
// call it after it has opened its views, and must not wait for anything else until [Info.Made]
// gives the place back. Otherwise calls that wait for a position could occupy all places.
func (i *Info) MakeLong(ctx context.Context, entries int) error {
	if entries <= ShortPage || i.LongPages == nil || i.holdsLongPage {
		return nil
	}
	if err := i.LongPages.Wait(ctx); err != nil {
		return err
	}
	i.holdsLongPage = true
	return nil
}

// Made gives back the place of a long page, if the call holds one. It is called when the answer was
// counted as memory, or dropped.
func (i *Info) Made() {
	if i.holdsLongPage {
		i.LongPages.Done()
		i.holdsLongPage = false
	}
}
