package eventlog

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/skein-feed/skein/events"
)

// The subjects of all requests that the package makes. docs/operations.md lists which NATS users need permission to publish to
// which of them: a new one must be added there.
const (
	askInfo           = "$JS.API.STREAM.INFO." + StreamName
	askCreate         = "$JS.API.STREAM.CREATE." + StreamName
	askUpdate         = "$JS.API.STREAM.UPDATE." + StreamName
	askPurge          = "$JS.API.STREAM.PURGE." + StreamName
	askDelete         = "$JS.API.STREAM.DELETE." + StreamName
	askMessage        = "$JS.API.STREAM.MSG.GET." + StreamName
	askConsumer       = "$JS.API.CONSUMER.CREATE." + StreamName
	askConsumerNames  = "$JS.API.CONSUMER.NAMES." + StreamName
	askConsumerDelete = "$JS.API.CONSUMER.DELETE." + StreamName + "."
	askNext           = "$JS.API.CONSUMER.MSG.NEXT." + StreamName + "."
	askAccount        = "$JS.API.INFO" // the client does before it makes a bucket
	askInfoOf         = "$JS.API.STREAM.INFO."
	askBucketInfo     = "$JS.API.STREAM.INFO.KV_" + leaseBucket
	askBucketCreate   = "$JS.API.STREAM.CREATE.KV_" + leaseBucket
	askBucketGet      = "$JS.API.DIRECT.GET.KV_" + leaseBucket + "."
	askBucketPut      = "$KV." + leaseBucket + "."
)

// question is a request that waits for an answer of the server.
type question struct {
	subjects []string // prefixes of the subjects that it is sent to
	refuse   context.CancelCauseFunc
}

// heed returns a context that also ends when the server says that the user may not publish to a subject that begins like one of
// these, or may not receive answers; the cause is [events.ErrForbidden]. The server does not report this in an answer, so a caller
// that only waited for one would wait until the timeout.
func (c *link) heed(ctx context.Context, subjects ...string) (context.Context, context.CancelFunc) {
	ctx, refuse := context.WithCancelCause(ctx)
	q := &question{subjects: subjects, refuse: refuse}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.questions = append(c.questions, q)
	return ctx, func() {
		refuse(nil)
		c.mu.Lock()
		defer c.mu.Unlock()
		c.questions = slices.DeleteFunc(c.questions, func(other *question) bool { return other == q })
	}
}

// forbidden returns the permission error that ended a context of [link.heed], or the given error if there was none.
func forbidden(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); err != nil && errors.Is(cause, events.ErrForbidden) {
		return cause
	}
	return err
}

// HasBucket reports whether the servers of the log have a key-value bucket.
func (l *Log) HasBucket(ctx context.Context, name string) (bool, error) {
	ctx, stop := l.link.heed(ctx, askInfoOf+"KV_"+name)
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	_, err := l.link.js.KeyValue(ctx, name)
	if errors.Is(err, jetstream.ErrBucketNotFound) {
		return false, nil
	}
	return err == nil, unavailable(forbidden(ctx, err))
}

// violation matches the server's text of a permission error, the only place that names the subject.
var violation = regexp.MustCompile(`(Publish|Subscription) to "([^"]*)"`)

// forbid ends the requests that a permission error concerns; if the user may not receive answers, it ends all of them. It returns
// nil for other errors.
func (c *link) forbid(err error) error {
	if !errors.Is(err, nats.ErrPermissionViolation) {
		return nil
	}
	said := violation.FindStringSubmatch(err.Error())
	if said == nil {
		return fmt.Errorf("%w: %w", events.ErrForbidden, err)
	}
	verb, subject := "publish", said[2]
	if said[1] == "Subscription" {
		verb = "subscribe"
	}
	err = fmt.Errorf("%w: to %s to %s", events.ErrForbidden, verb, subject)
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, q := range c.questions {
		about := func(s string) bool { return strings.HasPrefix(subject, s) }
		if verb == "subscribe" || slices.ContainsFunc(q.subjects, about) {
			q.refuse(err)
		}
	}
	return err
}
