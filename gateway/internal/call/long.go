package call

import "context"

const (
	// longAnswers is how many long answers are made at a time. One of them takes up to half a megabyte until it is counted as an
	// answer that waits for its client. Thousands of calls may be at it, each of which has made a part when its turn ends.
	longAnswers = 32
	// ShortPage is the largest page that is not such an answer.
	ShortPage = defaultPageSize
)

// Semaphore bounds how many calls make a long answer at a time.
type Semaphore chan struct{}

// NewSemaphore returns that of a server.
func NewSemaphore() Semaphore { return make(Semaphore, longAnswers) }

// MakeLong acquires the semaphore of long answers, if a page of so many entries is one. The call has its views by then, and waits for
// nothing else until [Info.Made] releases it.
func (i *Info) MakeLong(ctx context.Context, entries int) error {
	if entries <= ShortPage || i.LongAnswers == nil || i.acquired {
		return nil
	}
	select {
	case i.LongAnswers <- struct{}{}:
		i.acquired = true
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Made releases the semaphore when an answer is made, and counted or dropped.
func (i *Info) Made() {
	if i.acquired {
		<-i.LongAnswers
		i.acquired = false
	}
}
