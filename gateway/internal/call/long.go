package call

import "context"

const (
	// longAnswers is how many long answers are made at a time. One of them takes up to half a megabyte until it is counted as an
	// answer that waits for its client. Thousands of calls may be at it, each of which has made a part when its turn ends.
	longAnswers = 32
	// ShortPage is the largest page that is not such an answer.
	ShortPage = defaultPageSize
)

// Places has a place for each call that makes a long answer.
type Places chan struct{}

// NewPlaces returns those of a server.
func NewPlaces() Places { return make(Places, longAnswers) }

// MakeLong waits for a place among the calls that make long answers, if a page of so many entries is one. The call has its views by
// then, and waits for nothing else while it has the place, which [Info.Made] gives back.
func (i *Info) MakeLong(ctx context.Context, entries int) error {
	if entries <= ShortPage || i.Places == nil || i.has {
		return nil
	}
	select {
	case i.Places <- struct{}{}:
		i.has = true
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Made gives back the place of an answer that is made, and counted or dropped.
func (i *Info) Made() {
	if i.has {
		<-i.Places
		i.has = false
	}
}
