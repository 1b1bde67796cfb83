package call

import "context"

// ShortPage is the largest page that counts as no long page.
const ShortPage = defaultPageSize

// MakeLong waits for a place among the long pages, if a page of so many entries is one. The call has its views by then, and waits for
// nothing else until [Info.Made] gives the place back.
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

// Made gives back the place of a long page when the answer is made, and counted or dropped.
func (i *Info) Made() {
	if i.holdsLongPage {
		i.LongPages.Done()
		i.holdsLongPage = false
	}
}
