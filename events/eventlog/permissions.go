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

// The subjects of all requests that the package sends. A name that ends with Prefix lacks the last
// part of the subject. docs/operations.md lists the permissions that the NATS users need for them,
// so add a new subject there, too.
const (
	streamInfoSubject    = "$JS.API.STREAM.INFO." + StreamName
	streamCreateSubject  = "$JS.API.STREAM.CREATE." + StreamName
	streamUpdateSubject  = "$JS.API.STREAM.UPDATE." + StreamName
	streamPurgeSubject   = "$JS.API.STREAM.PURGE." + StreamName
	streamDeleteSubject  = "$JS.API.STREAM.DELETE." + StreamName
	getMessageSubject    = "$JS.API.STREAM.MSG.GET." + StreamName
	streamInfoPrefix     = "$JS.API.STREAM.INFO."
	accountInfoSubject   = "$JS.API.INFO" // the client library sends it before it creates a bucket
	bucketInfoSubject    = "$JS.API.STREAM.INFO.KV_" + leaseBucket
	bucketCreateSubject  = "$JS.API.STREAM.CREATE.KV_" + leaseBucket
	bucketGetPrefix      = "$JS.API.DIRECT.GET.KV_" + leaseBucket + "."
	bucketPutPrefix      = "$KV." + leaseBucket + "."
	consumerNextPrefix   = "$JS.API.CONSUMER.MSG.NEXT." + StreamName + "."
	consumerDeletePrefix = "$JS.API.CONSUMER.DELETE." + StreamName + "."

	consumerCreateSubject = "$JS.API.CONSUMER.CREATE." + StreamName
	consumerNamesSubject  = "$JS.API.CONSUMER.NAMES." + StreamName
)

// pendingRequest is a request that waits for an answer of the server.
type pendingRequest struct {
	// subjects are the subjects to which the request is sent, or prefixes of them.
	subjects []string
	// cancel ends the context of the request.
	cancel context.CancelCauseFunc
}

// watchPermissions returns a context for a request to the given subjects, or to subjects with these
// prefixes. The context also ends when the server says that the user may not publish to one of
// them, or may not subscribe to its inbox and so cannot receive the answer. Its cause is then an
// [events.ErrForbidden].
//
// Without that context a request would wait until its timeout, because the server never reports a
// missing permission as an answer.
func (c *connection) watchPermissions(ctx context.Context, subjects ...string) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	request := &pendingRequest{subjects: subjects, cancel: cancel}
	stop := func() {
		cancel(nil)
		c.mu.Lock()
		defer c.mu.Unlock()
		c.pendingRequests = slices.DeleteFunc(c.pendingRequests, func(r *pendingRequest) bool { return r == request })
	}

	c.mu.Lock()
	defer c.mu.Unlock()
	c.pendingRequests = append(c.pendingRequests, request)
	return ctx, stop
}

// permissionError returns the error that a failed request has: the permission error that ended ctx,
// which must be of [connection.watchPermissions], or else err. It returns nil if err is nil.
func permissionError(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); err != nil && errors.Is(cause, events.ErrForbidden) {
		return cause
	}
	return err
}

// HasBucket reports whether the servers of the log have the key-value bucket with the given name.
func (l *Log) HasBucket(ctx context.Context, name string) (bool, error) {
	ctx, stop := l.conn.watchPermissions(ctx, streamInfoPrefix+"KV_"+name)
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()

	_, err := l.conn.js.KeyValue(ctx, name)
	if errors.Is(err, jetstream.ErrBucketNotFound) {
		return false, nil
	}
	return err == nil, wrapUnavailable(permissionError(ctx, err))
}

// violationPattern matches the server's text of a permission error. The subject is only in that
// text.
var violationPattern = regexp.MustCompile(`(Publish|Subscription) to "([^"]*)"`)

// cancelForbidden ends the pending requests that a permission error of the server concerns, and
// returns the error as an [events.ErrForbidden] that names the subject. It ignores all other errors
// and returns nil for them.
func (c *connection) cancelForbidden(err error) error {
	if !errors.Is(err, nats.ErrPermissionViolation) {
		return nil
	}
	match := violationPattern.FindStringSubmatch(err.Error())
	if match == nil {
		return fmt.Errorf("%w: %w", events.ErrForbidden, err)
	}

	verb := "publish"
	if match[1] == "Subscription" {
		verb = "subscribe"
	}
	subject := match[2]
	err = fmt.Errorf("%w: to %s to %s", events.ErrForbidden, verb, subject)

	c.mu.Lock()
	defer c.mu.Unlock()
	for _, request := range c.pendingRequests {
		isConcerned := func(prefix string) bool { return strings.HasPrefix(subject, prefix) }
		// A client that may not subscribe to its inbox receives no answer to any request.
		if verb == "subscribe" || slices.ContainsFunc(request.subjects, isConcerned) {
			request.cancel(err)
		}
	}
	return err
}
