package gateway

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"

	"github.com/skein-feed/skein/proto/grpc/health/v1/healthv1connect"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
	connectv1 "github.com/skein-feed/skein/proto/skein/v1/skeinv1connect"
)

// post sends a body and returns the status, the headers and the body of the answer.
func (w *world) post(procedure, contentType string, body io.Reader, headers ...string) (int, http.Header, []byte) {
	w.t.Helper()
	req, err := http.NewRequestWithContext(w.t.Context(), http.MethodPost, w.url+procedure, body)
	if err != nil {
		w.t.Fatal(err)
	}
	req.Header.Set("Content-Type", contentType)
	for i := 0; i+1 < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	return w.do(req)
}

func (w *world) get(path string) (int, http.Header, []byte) {
	w.t.Helper()
	req, err := http.NewRequestWithContext(w.t.Context(), http.MethodGet, w.url+path, http.NoBody)
	if err != nil {
		w.t.Fatal(err)
	}
	return w.do(req)
}

func (w *world) do(req *http.Request) (int, http.Header, []byte) {
	w.t.Helper()
	res, err := w.http.Do(req)
	if err != nil {
		w.t.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		w.t.Fatal(err)
	}
	return res.StatusCode, res.Header, body
}

// jsonError is an error of the Connect protocol.
type jsonError struct {
	Code, Message string
	Details       []struct {
		Type  string
		Debug map[string]any
	}
}

func (e jsonError) reason() string {
	for _, d := range e.Details {
		if d.Type == "google.rpc.ErrorInfo" {
			reason, _ := d.Debug["reason"].(string)
			return reason
		}
	}
	return ""
}

func parseError(t testing.TB, body []byte) (e jsonError) {
	t.Helper()
	if err := json.Unmarshal(body, &e); err != nil {
		t.Fatalf("%s: %v", body, err)
	}
	return e
}

// The shape of JSON: default values are written, so that "no" is seen.
func TestJSON(t *testing.T) {
	w := newWorld(t)
	at := w.publish(follow("ann", "bob"))
	for _, c := range []struct{ procedure, body, want string }{
		{
			connectv1.GraphServiceCheckFollowsProcedure,
			`{"pairs":[{"userId":"ann","targetUserId":"bob"},{"user_id":"bob","target_user_id":"ann"}],"atLeast":"` + at + `"}`,
			`{"kinds":["FOLLOW_KIND_EXPLICIT","FOLLOW_KIND_NONE"],"followTimes":[],"position":"` + at + `"}`,
		},
		{
			connectv1.GraphServiceFilterFollowedProcedure, `{"viewerId":"bob","userIds":["ann"]}`,
			`{"indexes":[],"position":"` + at + `"}`,
		},
		{
			connectv1.GraphServiceBatchGetRelationshipsProcedure, `{"viewerId":"bob","userIds":["cid"]}`,
			`{"relationships":[{"userId":"cid","following":"FOLLOW_KIND_NONE","followedBy":"FOLLOW_KIND_NONE",` +
				`"blocking":false,"blockedBy":false,"muting":false}],"position":"` + at + `"}`,
		},
		{
			connectv1.GraphServiceListFollowersProcedure, `{"userId":"nobody"}`,
			`{"entries":[],"nextPageToken":"","totalSize":0,"position":"` + at + `"}`,
		},
		{
			connectv1.EventServicePublishProcedure, `{"events":[{"userFollowed":{"userId":"x","targetUserId":"x"}}],"allowPartial":true}`,
			`{"position":"","acceptedCount":0,"eventIds":[""],"rejections":[{"index":0,"reason":"REASON_SELF_RELATION",` +
				`"field":"user_followed.target_user_id","message":"user_followed.target_user_id must not be the acting user: nobody follows, blocks or mutes themselves"}],` +
				`"repeatedIndexes":[],"repeatsKnown":false}`,
		},
	} {
		for _, contentType := range []string{"application/json", "application/json; charset=utf-8", "application/json;charset=UTF-8"} {
			status, _, body := w.post(c.procedure, contentType, strings.NewReader(c.body))
			var got, want any
			if err := json.Unmarshal(body, &got); err != nil {
				t.Fatalf("%s: %s", c.procedure, body)
			}
			if err := json.Unmarshal([]byte(c.want), &want); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, got); diff != "" || status != http.StatusOK {
				t.Errorf("%s: %d %s", c.procedure, status, diff)
			}
		}
	}
}

func TestGet(t *testing.T) {
	w := newWorld(t)
	at := w.publish(follow("ann", "bob"))
	query := "?connect=v1&encoding=json&message=" + url.QueryEscape(`{"userId":"bob","atLeast":"`+at+`"}`)
	status, header, body := w.get(connectv1.GraphServiceListFollowersProcedure + query)
	if status != http.StatusOK || !bytes.Contains(body, []byte(`"ann"`)) || header.Get("Cache-Control") != "no-store" {
		t.Errorf("%d %s %v", status, body, header)
	}
	// Errors are not kept either, and what changes something cannot be got.
	status, header, body = w.get(connectv1.GraphServiceListFollowersProcedure + "?connect=v1&encoding=json&message=%7B%7D")
	if status != http.StatusBadRequest || parseError(t, body).reason() != "INVALID_FIELD" || header.Get("Cache-Control") != "no-store" {
		t.Errorf("%d %s %v", status, body, header)
	}
	if status, _, _ = w.get(connectv1.EventServicePublishProcedure + query); status != http.StatusMethodNotAllowed {
		t.Errorf("Publish by GET: %d", status)
	}
	w.connect(connect.WithHTTPGet())
	res, err := w.graph.ListFollowers(t.Context(), connect.NewRequest(&skeinv1.ListFollowersRequest{UserId: "bob", AtLeast: at}))
	if err != nil || len(res.Msg.GetEntries()) != 1 {
		t.Error(res, err)
	}
	// Every method without side effects, and no other but the streams that a page in a browser
	// reads (see TestEventsOfLog).
	for _, service := range services() {
		for i := range service.Methods().Len() {
			procedure := fmt.Sprintf("/%s/%s", service.FullName(), service.Methods().Get(i).Name())
			if procedure == connectv1.EventServiceWatchProcedure {
				continue
			}
			status, _, _ := w.get(procedure + "?connect=v1&encoding=json&message=%7B%7D")
			idempotent := strings.Contains(fmt.Sprint(service.Methods().Get(i).Options()), "NO_SIDE_EFFECTS")
			if (status == http.StatusMethodNotAllowed) == idempotent {
				t.Errorf("%s by GET: %d", procedure, status)
			}
		}
	}
}

func TestProtocols(t *testing.T) {
	w := newWorld(t)
	at := w.publish(follow("ann", "bob"))
	h2 := &http.Transport{Protocols: new(http.Protocols)}
	h2.Protocols.SetUnencryptedHTTP2(true)
	defer h2.CloseIdleConnections()
	one := w.http
	for name, c := range map[string]struct {
		http    *http.Client
		options []connect.ClientOption
	}{
		"connect":                   {one, nil},
		"connect with JSON":         {one, []connect.ClientOption{connect.WithProtoJSON()}},
		"connect over HTTP/2":       {&http.Client{Transport: h2}, nil},
		"connect, gzipped requests": {one, []connect.ClientOption{connect.WithSendGzip()}},
		"gRPC":                      {&http.Client{Transport: h2}, []connect.ClientOption{connect.WithGRPC()}},
		"gRPC-Web":                  {one, []connect.ClientOption{connect.WithGRPCWeb()}},
		"gRPC-Web with JSON":        {one, []connect.ClientOption{connect.WithGRPCWeb(), connect.WithProtoJSON()}},
	} {
		w.http = c.http
		w.connect(c.options...)
		if p, err := w.followers("bob", anyKind)(1, "", at); err != nil || len(p.entries) != 1 {
			t.Errorf("%s: %v %v", name, p, err)
		}
		if got, _ := w.scan(scanUser("bob", "", at), nil); len(got) != 1 {
			t.Errorf("%s: scan %v", name, got)
		}
		_, err := w.followers("", anyKind)(-1, "", at)
		wantError(t, err, connect.CodeInvalidArgument, "INVALID_FIELD", "user_id")
		if n := len(detailsOf(t, err).fields); n != 2 {
			t.Errorf("%s: %d fields at fault", name, n)
		}
	}
	w.http = one
}

// Bad input: each gets a clear error, and the service stays up and right.
func TestBadInput(t *testing.T) {
	w := newWorld(t)
	at := w.publish(follow("ann", "bob"))
	long, thousandAndOne := strings.Repeat("x", 129), func(item string) string {
		return strings.TrimSuffix(strings.Repeat(item+",", 1001), ",")
	}
	publish, check := connectv1.EventServicePublishProcedure, connectv1.GraphServiceCheckFollowsProcedure
	backfills := make([]string, 1000)
	for i := range backfills {
		backfills[i] = fmt.Sprintf(`{"userFollowed":{"userId":%q,"targetUserId":%q},"source":%q,"offset":%d,"occurredAt":"2001-01-01T00:00:00Z"}`,
			long[:128], strings.Repeat("y", 128), long[:64], i+1)
	}
	for name, c := range map[string]struct {
		procedure, body, reason, text string
	}{
		"self-follow":     {publish, `{"events":[{"userFollowed":{"userId":"a","targetUserId":"a"}}]}`, "SELF_RELATION", "events[0].user_followed.target_user_id must not be the acting user"},
		"over-long id":    {publish, `{"events":[{"userFollowed":{"userId":"` + long + `","targetUserId":"a"}}]}`, "INVALID_FIELD", "129 bytes"},
		"empty id":        {publish, `{"events":[{"userFollowed":{"userId":"","targetUserId":"a"}}]}`, "INVALID_FIELD", "events[0].user_followed.user_id must be 1 to 128 bytes"},
		"1001 events":     {publish, `{"events":[` + thousandAndOne(`{"userFollowed":{"userId":"a","targetUserId":"b"}}`) + `]}`, "TOO_LARGE", "more than 1000 events: at most 1000"},
		"call of 1 MB":    {publish, `{"events":[` + strings.Join(backfills, ",") + `]}`, "", ""},
		"1001 pairs":      {check, `{"pairs":[` + thousandAndOne(`{"userId":"a","targetUserId":"b"}`) + `]}`, "INVALID_FIELD", "pairs has more than 1000 items: must have at most 1000"},
		"no pairs":        {check, `{}`, "INVALID_FIELD", "pairs has 0 items"},
		"pair of nobody":  {check, `{"pairs":[{"userId":"a"}]}`, "INVALID_FIELD", "pairs[0].target must be given"},
		"id with a space": {check, `{"pairs":[{"userId":"a","targetUserId":"b c"}]}`, "INVALID_FIELD", "pairs[0].target_user_id must be UTF-8 without white space"},
		"id of a NUL":     {check, `{"pairs":[{"userId":"a","board":{"ownerId":"b","boardId":"\u0000"}}]}`, "INVALID_FIELD", "pairs[0].board.board_id"},
		"foreign token":   {connectv1.GraphServiceListFollowersProcedure, `{"userId":"bob","pageToken":"AQNsb2c"}`, "INVALID_PAGE_TOKEN", "page_token"},
		"future":          {check, `{"pairs":[{"userId":"a","targetUserId":"b"}],"atLeast":"` + w.log.Position(99).String() + `"}`, "INVALID_POSITION", "at_least is beyond the end of the log"},
		"unknown kind":    {connectv1.GraphServiceListFollowersProcedure, `{"userId":"bob","kind":"FOLLOW_KIND_BOARD"}`, "INVALID_FIELD", "kind"},
		"unknown enum":    {connectv1.GraphServiceListFollowersProcedure, `{"userId":"bob","kind":"SIDEWAYS"}`, "INVALID_FIELD", "kind must be FOLLOW_KIND_EXPLICIT or"},
		"unknown field":   {connectv1.GraphServiceListFollowersProcedure, `{"userId":"bob","atLeest":"x"}`, "INVALID_FIELD", "atLeest"},
		"number for text": {connectv1.GraphServiceListFollowersProcedure, `{"userId":7}`, "INVALID_FIELD", "user_id must be a JSON string"},
		"half a body":     {connectv1.GraphServiceListFollowersProcedure, `{"userId":"b`, "INVALID_FIELD", "the body is no skein.v1.ListFollowersRequest"},
		"an empty body":   {connectv1.GraphServiceListFollowersProcedure, ``, "INVALID_FIELD", "the body is no skein.v1.ListFollowersRequest: an empty body"},
		"a list":          {connectv1.GraphServiceListFollowersProcedure, `[]`, "INVALID_FIELD", "the body is no skein.v1.ListFollowersRequest"},
		"deep nesting":    {connectv1.GraphServiceListFollowersProcedure, strings.Repeat(`{"x":`, 100_000), "INVALID_FIELD", "the body is no skein.v1.ListFollowersRequest"},
	} {
		status, _, body := w.post(c.procedure, "application/json", strings.NewReader(c.body))
		if name == "call of 1 MB" {
			// 1000 good events, but 380 KiB in binary: the limit is that of the log, so this one is
			// taken.
			if status != http.StatusOK {
				t.Errorf("%s: %d %s", name, status, body)
			}
			continue
		}
		e := parseError(t, body)
		if status != http.StatusBadRequest || e.Code != "invalid_argument" || e.reason() != c.reason || !strings.Contains(e.Message, c.text) {
			t.Errorf("%s: %d %.300s", name, status, body)
		}
	}
	if _, err := w.followers("bob", anyKind)(1, "", at); err != nil {
		t.Error("afterwards: ", err)
	}
}

// endless is a body without an end.
type endless struct{ read atomic.Int64 }

func (e *endless) Read(p []byte) (int, error) {
	e.read.Add(int64(len(p)))
	for i := range p {
		p[i] = ' '
	}
	return len(p), nil
}

// A body of 100 MB is refused without being read: known by its length, or at the limit.
func TestBodiesThatAreTooLarge(t *testing.T) {
	w := newWorld(t)
	const size = 100 << 20
	for name, request := range map[string]func(io.Reader) *http.Request{
		"of known length": func(body io.Reader) *http.Request {
			req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, w.url+connectv1.EventServicePublishProcedure, body)
			if err != nil {
				t.Fatal(err)
			}
			req.ContentLength = size
			return req
		},
		"of unknown length": func(body io.Reader) *http.Request {
			req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, w.url+connectv1.EventServicePublishProcedure, body)
			if err != nil {
				t.Fatal(err)
			}
			return req
		},
	} {
		for _, contentType := range []string{"application/json", "application/proto"} {
			body := &endless{}
			req := request(io.LimitReader(body, size))
			req.Header.Set("Content-Type", contentType)
			res, err := w.http.Do(req)
			if err != nil {
				// The connection may be closed before the client has read the answer: it was still
				// sending.
				t.Log(name, err)
			} else {
				answer, _ := io.ReadAll(res.Body)
				if e := parseError(t, answer); e.reason() != "TOO_LARGE" || e.Code != "invalid_argument" || !strings.Contains(e.Message, "4 MiB") {
					t.Errorf("%s: %s", name, answer)
				}
				res.Body.Close()
			}
			if n := body.read.Load(); n > 16<<20 {
				t.Errorf("%s: %d bytes were read", name, n)
			}
		}
	}
	// What is small as it is sent and large when it is unpacked: six times the limit.
	var bomb bytes.Buffer
	z := gzip.NewWriter(&bomb)
	if _, err := io.CopyN(z, &endless{}, 24<<20); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	status, _, answer := w.post(connectv1.EventServicePublishProcedure, "application/json", &bomb, "Content-Encoding", "gzip")
	if e := parseError(t, answer); status != http.StatusBadRequest || e.reason() != "TOO_LARGE" {
		t.Errorf("gzip: %d %s", status, answer)
	}
	w.publish(follow("ann", "bob"))
}

// Random bytes at every method, in every encoding: an answer, never a panic.
func TestRandomBytes(t *testing.T) {
	w := newWorld(t, withFeeds)
	random := rand.New(rand.NewPCG(1, 2))
	good, err := proto.Marshal(&skeinv1.CheckFollowsRequest{Pairs: []*skeinv1.FollowPair{userPair("ann", "bob")}})
	if err != nil {
		t.Fatal(err)
	}
	for procedure := range w.server.methods {
		if procedure == healthv1connect.HealthWatchProcedure {
			continue // has no end
		}
		for range 30 {
			body := make([]byte, random.IntN(200))
			for i := range body {
				body[i] = byte(random.Uint32())
			}
			if random.IntN(2) == 0 {
				body = append([]byte(nil), good...)
				body[random.IntN(len(body))] ^= 1 << random.IntN(8)
			}
			for _, contentType := range []string{
				"application/proto", "application/json", "application/grpc-web+proto", "application/connect+proto", "text/plain",
			} {
				status, _, answer := w.post(procedure, contentType, bytes.NewReader(body))
				if status == http.StatusInternalServerError {
					t.Fatalf("%s %s %x: %d %s", procedure, contentType, body, status, answer)
				}
			}
		}
	}
	w.publish(follow("ann", "bob"))
}

func TestTooManyCallsAtOnce(t *testing.T) {
	w := newWorld(t, asleep, func(o *worldOptions) { o.Limits.InFlight, o.Limits.AtLeastWait = 1, time.Hour })
	at := w.publish(follow("ann", "bob"))
	waits := make(chan error)
	go func() {
		_, err := w.graph.ListFollowers(t.Context(), connect.NewRequest(&skeinv1.ListFollowersRequest{UserId: "bob", AtLeast: at}))
		waits <- err
	}()
	w.awaitInFlight(1)
	_, err := w.followers("bob", anyKind)(1, "", "")
	wantError(t, err, connect.CodeResourceExhausted, "OVERLOADED", "")
	if !detailsOf(t, err).retry {
		t.Error("no RetryInfo")
	}
	w.fold()
	if err := <-waits; err != nil {
		t.Error(err)
	}
	for w.server.budgets.InFlight() > 0 {
		runtime.Gosched()
	}
	if _, err = w.followers("bob", anyKind)(1, "", ""); err != nil {
		t.Error(err)
	}
}

// Other protocols have the reason too.
func TestRefusedInGRPC(t *testing.T) {
	w := newWorld(t, func(o *worldOptions) { o.Limits.BodyBytes = 1000 })
	h2 := &http.Transport{Protocols: new(http.Protocols)}
	h2.Protocols.SetUnencryptedHTTP2(true)
	defer h2.CloseIdleConnections()
	w.http = &http.Client{Transport: h2}
	w.connect(connect.WithGRPC())
	var many []*skeinv1.Event
	for range 100 {
		many = append(many, follow("ann", "bob"))
	}
	_, err := w.events.Publish(t.Context(), connect.NewRequest(&skeinv1.PublishRequest{Events: many}))
	if code := connect.CodeOf(err); code != connect.CodeInvalidArgument && code != connect.CodeResourceExhausted {
		t.Error(err)
	}
	_, err = w.events.Publish(t.Context(), connect.NewRequest(&skeinv1.PublishRequest{Events: []*skeinv1.Event{follow("a", "a")}}))
	wantError(t, err, connect.CodeInvalidArgument, "SELF_RELATION", "events[0].user_followed.target_user_id")
}

// TestCallToUncleanPathGetsAnError: a base URL that ends with a slash makes such paths, and no
// client of an RPC follows a redirect.
func TestCallToUncleanPathGetsAnError(t *testing.T) {
	w := newWorld(t)
	status, header, body := w.post("/"+connectv1.GraphServiceCheckFollowsProcedure, "application/json", strings.NewReader("{}"))
	if e := parseError(t, body); status != http.StatusNotFound || !strings.Contains(e.Message, `it is "//skein.v1.GraphService/CheckFollows"`) {
		t.Errorf("expected 404 and the path, got %d %v %s", status, header, body)
	}
}

// TestMalformedProtocolHeadersAreNamed: an error from before a method runs has the reason and the
// field, as those of methods have.
func TestMalformedProtocolHeadersAreNamed(t *testing.T) {
	const (
		jsonType, protoType = "application/json", "application/proto"
		list, watch         = connectv1.GraphServiceListFollowersProcedure, connectv1.EventServiceWatchProcedure
	)
	w := newWorld(t)
	for _, c := range []struct {
		name, procedure, contentType string
		headers                      []string
		code, message                string
	}{
		{
			"a timeout that is no number", list, jsonType,
			[]string{"Connect-Timeout-Ms", "soon"},
			"invalid_argument",
			`Connect-Timeout-Ms must be a number of milliseconds of 1 to 10 digits, as in 500; it is "soon"`,
		},
		{
			"a negative timeout", list, protoType,
			[]string{"Connect-Timeout-Ms", "-1"},
			"invalid_argument",
			`Connect-Timeout-Ms must be a number of milliseconds of 1 to 10 digits, as in 500; it is "-1"`,
		},
		{
			"a timeout of 11 digits", list, protoType,
			[]string{"Connect-Timeout-Ms", "12345678901"},
			"invalid_argument",
			`Connect-Timeout-Ms must be a number of milliseconds of 1 to 10 digits, as in 500; it is "12345678901"`,
		},
		{
			"an unknown compression", list, jsonType,
			[]string{"Content-Encoding", "br"},
			"unimplemented",
			`Content-Encoding must be gzip or identity; it is "br"`,
		},
		{
			"an unknown version", list, protoType,
			[]string{"Connect-Protocol-Version", "2"},
			"invalid_argument",
			`Connect-Protocol-Version must be 1; it is "2"`,
		},
		{
			"an unknown version of a stream", watch, "application/connect+json",
			[]string{"Connect-Protocol-Version", "2"},
			"invalid_argument",
			`Connect-Protocol-Version must be 1; it is "2"`,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, _, body := w.post(c.procedure, c.contentType, strings.NewReader("{}"), c.headers...)
			e := parseError(t, body)
			if diff := cmp.Diff([]string{c.code, "INVALID_FIELD", c.message}, []string{e.Code, e.reason(), e.Message}); diff != "" {
				t.Error(diff)
			}
		})
	}
	for _, c := range []struct{ name, query, code, message string }{
		{"a GET of an unknown version", "connect=v2&encoding=json&message=%7B%7D", "invalid_argument", `connect must be v1 in the query of a GET; it is "v2"`},
		{
			"a GET of an unknown compression", "connect=v1&encoding=json&compression=br&message=%7B%7D", "unimplemented",
			`compression must be gzip or identity; it is "br"`,
		},
		{
			"a GET without a message", "connect=v1&encoding=json", "invalid_argument",
			"message must be given in the query of a GET, as in encoding=json&message=%7B%22userId%22%3A%22ann%22%7D",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, _, body := w.get(list + "?" + c.query)
			e := parseError(t, body)
			if diff := cmp.Diff([]string{c.code, "INVALID_FIELD", c.message}, []string{e.Code, e.reason(), e.Message}); diff != "" {
				t.Error(diff)
			}
		})
	}
	// The errors of a stream are in its last frame, and those of gRPC in headers.
	for _, c := range []struct{ name, contentType, header, value, message string }{
		{"a timeout of a stream", "application/connect+json", "Connect-Timeout-Ms", "soon", "Connect-Timeout-Ms must be a number"},
		{"a compression of a stream", "application/connect+json", "Connect-Content-Encoding", "br", "Connect-Content-Encoding must be gzip or identity"},
		{"a timeout of gRPC", "application/grpc-web+proto", "Grpc-Timeout", "500", "Grpc-Timeout must be 1 to 8 digits and a unit"},
		{"a compression of gRPC", "application/grpc-web+proto", "Grpc-Encoding", "br", "Grpc-Encoding must be gzip or identity"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, header, body := w.post(watch, c.contentType, strings.NewReader("\x00\x00\x00\x00\x02{}"), c.header, c.value)
			if text := fmt.Sprint(header) + string(body); !strings.Contains(text, c.message) {
				t.Errorf("expected %q, got %q", c.message, text)
			}
		})
	}
}

// TestGRPCWebTextIsRefused: the base64 form of gRPC-Web is not supported, and the error names the
// forms that are.
func TestGRPCWebTextIsRefused(t *testing.T) {
	w := newWorld(t)
	for _, contentType := range []string{"application/grpc-web-text", "application/grpc-web-text+proto"} {
		status, _, body := w.post(connectv1.GraphServiceListFollowersProcedure, contentType, strings.NewReader("AAAAAAA="))
		e := parseError(t, body)
		if status != http.StatusUnsupportedMediaType || !strings.Contains(e.Message, "application/grpc-web; it is") {
			t.Errorf("%s: expected 415 and the supported types, got %d %s", contentType, status, body)
		}
	}
}

// TestEveryAnswerForbidsSniffing: also the answers of the loop, errors, and pages that are not
// there.
func TestEveryAnswerForbidsSniffing(t *testing.T) {
	w := newWorld(t, func(o *worldOptions) { o.Console = true })
	w.publish(follow("ann", "bob"))
	wantNoSniff := func(name string, header http.Header) {
		t.Helper()
		if got := header.Values("X-Content-Type-Options"); !slices.Equal(got, []string{"nosniff"}) {
			t.Errorf("%s: expected one header X-Content-Type-Options: nosniff, got %q", name, got)
		}
	}
	for _, path := range []string{"/", "/healthz", "/readyz", "/metrics", "/console/", "/nothing", "//healthz"} {
		_, header, _ := w.get(path)
		wantNoSniff(path, header)
	}
	list := connectv1.GraphServiceListFollowersProcedure
	for contentType, body := range map[string][]byte{
		"application/json": []byte(`{"userId":"bob"}`), "application/proto": marshal(t, &skeinv1.ListFollowersRequest{UserId: "bob"}), "text/plain": nil,
	} {
		_, header, _ := w.post(list, contentType, bytes.NewReader(body))
		wantNoSniff(contentType, header)
	}
	_, header, _ := w.post(list, "application/proto", bytes.NewReader(marshal(t, &skeinv1.ListFollowersRequest{})))
	wantNoSniff("an error of the loop", header)
}

// TestFrontPageLeadsToConsole: a person who opens the address of the service finds the console, or
// reads what is there.
func TestFrontPageLeadsToConsole(t *testing.T) {
	for name, withConsole := range map[string]bool{"with a console": true, "without a console": false} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, func(o *worldOptions) { o.Console = withConsole })
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, w.url+"/", http.NoBody)
			if err != nil {
				t.Fatal(err)
			}
			res, err := w.http.Transport.RoundTrip(req) // a client would follow the redirect
			if err != nil {
				t.Fatal(err)
			}
			defer res.Body.Close()
			text, err := io.ReadAll(res.Body)
			if err != nil {
				t.Fatal(err)
			}
			status, location, says := http.StatusOK, "", "not served here"
			if withConsole {
				status, location, says = http.StatusFound, "console/", "/console/"
			}
			if res.StatusCode != status || res.Header.Get("Location") != location || !strings.Contains(string(text), says) ||
				!strings.Contains(string(text), "/readyz") {
				t.Errorf("expected %d to %q that says %q, got %d to %q: %s", status, location, says, res.StatusCode, res.Header.Get("Location"), text)
			}
		})
	}
}

func TestNoSuchPage(t *testing.T) {
	w := newWorld(t)
	for _, path := range []string{
		"/nothing", "/skein.v1.GraphService/Nothing", "/metrics/x", "/skein.v1.GraphService", "/skein.v1.GraphService/Check%46ollows",
		"//", "//skein.v1.GraphService/CheckFollows", "/skein.v1.GraphService//CheckFollows", "/./healthz", "/console/../healthz", "/healthz//",
	} {
		const want = "path must be that of a method, as /skein.v1.GraphService/CheckFollows, or of a page: /healthz, /readyz, /metrics; it is %q"
		status, header, body := w.get(path)
		if e := parseError(t, body); status != http.StatusNotFound || e.Message != fmt.Sprintf(want, path) || e.Code != "unimplemented" ||
			header.Get("Content-Type") != "application/json" {
			t.Errorf("%s: %d %v %s", path, status, header, body)
		}
	}
	status, header, body := w.post("/healthz", "application/json", strings.NewReader("{}"))
	if e := parseError(t, body); status != http.StatusMethodNotAllowed || e.Message != `method must be GET, HEAD; it is "POST"` ||
		header.Get("Allow") != "GET, HEAD" {
		t.Errorf("POST of /healthz: %d %v %s", status, header, body)
	}
	status, header, body = w.get(connectv1.EventServicePublishProcedure)
	if e := parseError(t, body); status != http.StatusMethodNotAllowed || e.Message != `method must be POST; it is "GET"` ||
		header.Get("Allow") != "POST" {
		t.Errorf("GET of Publish: %d %v %s", status, header, body)
	}
}
