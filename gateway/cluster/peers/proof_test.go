package peers

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/gateway/internal/admission"
	"github.com/skein-feed/skein/gateway/internal/apierror"
	"github.com/skein-feed/skein/gateway/pagetoken"
	peerv1 "github.com/skein-feed/skein/proto/skein/peer/v1"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

func hashOf(body string) string { return HashBody([]byte(body)) }

// otherKeys returns a key ring of a key that no node has.
func otherKeys(t *testing.T) pagetoken.KeyRing {
	t.Helper()
	keys, err := pagetoken.ParseKeyRing("k:" + base64.StdEncoding.EncodeToString(bytes.Repeat([]byte("x"), 32)))
	if err != nil {
		t.Fatal(err)
	}
	return keys
}

// TestProofHoldsForOneCallToOneNode demands that a proof is refused by another node, for another
// call, after its time, and in another cluster. Only the node that was called can prove the answer.
func TestProofHoldsForOneCallToOneNode(t *testing.T) {
	var answered atomic.Int64
	addr := serveNode(t, "b", http.HandlerFunc(func(http.ResponseWriter, *http.Request) { answered.Add(1) }))
	router := func(keys pagetoken.KeyRing, log events.LogID) *Credentials { return NewCredentials(keys, log, "", "") }
	good := router(testKeys, testLog)
	for _, c := range []struct {
		name         string
		caller       *Credentials
		callee, addr string
		path, body   string
		age          time.Duration
		wantStatus   int
	}{
		{"the call itself", good, "b", addr, "/ask", "body", 0, http.StatusOK},
		{"a call of a clock that is a little behind", good, "b", addr, "/ask", "body", maxProofAge / 2, http.StatusOK},
		{"of a call to a node with another name", good, "c", addr, "/ask", "body", 0, http.StatusUnauthorized},
		{"of a call to this node at another address", good, "b", "127.0.0.1:1", "/ask", "body", 0, http.StatusUnauthorized},
		{"of a call of another method", good, "b", addr, "/rows", "body", 0, http.StatusUnauthorized},
		{"of a call with another body", good, "b", addr, "/ask", "other", 0, http.StatusUnauthorized},
		{"of a call some time ago", good, "b", addr, "/ask", "body", 2 * maxProofAge, http.StatusUnauthorized},
		{"of a call that was dated ahead", good, "b", addr, "/ask", "body", -2 * maxProofAge, http.StatusUnauthorized},
		{"of a node with other keys", router(otherKeys(t), testLog), "b", addr, "/ask", "body", 0, http.StatusUnauthorized},
		{"of a node with another log", router(testKeys, events.LogID{2}), "b", addr, "/ask", "body", 0, http.StatusUnauthorized},
	} {
		t.Run(c.name, func(t *testing.T) {
			before := answered.Load()
			authorization, proof := c.caller.SignCall(&Node{Name: c.callee, Addr: c.addr}, c.path, hashOf(c.body), time.Now().Add(-c.age))
			req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+addr+"/ask", strings.NewReader("body"))
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set("Authorization", authorization)
			res, err := http.DefaultClient.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			if err := res.Body.Close(); err != nil || res.StatusCode != c.wantStatus {
				t.Errorf("got status %d, %v; want %d", res.StatusCode, err, c.wantStatus)
			}
			isGood := c.wantStatus == http.StatusOK
			if called := answered.Load() > before; called != isGood {
				t.Errorf("the method was called: %v, want %v", called, isGood)
			}
			if proven := proof.isProvenBy(res.Header.Get(proofHeader)); proven != isGood {
				t.Errorf("the answer is proven: %v, want %v", proven, isGood)
			}
			_, other := good.SignCall(&Node{Name: "b", Addr: addr}, "/ask", hashOf("body"), time.Now())
			if other.isProvenBy(res.Header.Get(proofHeader)) {
				t.Error("the answer also proves the answer to the next call, which is the same")
			}
		})
	}
}

// TestClocksOfNodesMayDiffer demands that a node whose clock differs by an hour is called again
// with its own time, and from then on always with that time.
func TestClocksOfNodesMayDiffer(t *testing.T) {
	for name, offset := range map[string]time.Duration{"ahead": time.Hour, "behind": -time.Hour} {
		t.Run(name, func(t *testing.T) {
			var answered atomic.Int64
			answer := func(ctx context.Context, req *peerv1.AskRequest) (*peerv1.AskResponse, error) {
				answered.Add(1)
				return answerAs("a", 1)(ctx, req)
			}
			p := newTestPeers(t, startNode(t, "a", events.AllPartitions(), answer))
			p.setClockOffset("a", offset) // as if the clock of this process had changed by that much

			if got, err := forwardAsk(t, p); err != nil || got != "a" {
				t.Errorf("got the answer of %q, %v; expected that of a", got, err)
			}
			if left := p.clockOffset("a").Abs(); left > maxProofAge {
				t.Errorf("the offset of the clock is %v after the call, expected at most %v", left, maxProofAge)
			}
			if answered.Load() != 1 {
				t.Errorf("the node answered %d calls, expected 1", answered.Load())
			}
		})
	}
}

// rawAnswer returns a handler that answers every request with the same bytes.
func rawAnswer(status int, contentType string, body []byte) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", contentType)
		w.WriteHeader(status)
		_, _ = w.Write(body)
	}
}

func mustMarshal(t *testing.T, m proto.Message) []byte {
	t.Helper()
	b, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// writeUntilRefused writes zeros until the client goes away, at most 1 GiB, and counts them in
// written.
func writeUntilRefused(w http.ResponseWriter, written *atomic.Int64) {
	for zeros := make([]byte, 1<<20); written.Load() < 1<<30; {
		n, err := w.Write(zeros)
		written.Add(int64(n))
		if err != nil {
			return
		}
	}
}

// TestBadAnswerIsTheFaultOfTheNode demands that an answer that is not proven, cannot be decoded, is
// of another log, is older than the demanded position, is compressed or too large is never passed
// on. The next node is asked. Without one, the call fails as unavailable.
func TestBadAnswerIsTheFaultOfTheNode(t *testing.T) {
	const protoType, jsonType = "application/proto", "application/json"
	good := mustMarshal(t, &peerv1.AskResponse{
		Newest: positionAt(5).String(), Answers: []*peerv1.Answer{{Entries: []*peerv1.Entry{{Item: "forged"}}}},
	})
	invalid := []byte(`{"code":"invalid_argument","message":"forged"}`)
	otherLog := events.Position{Log: [4]byte{2}, Epoch: 1, Seq: 5}
	var written atomic.Int64
	for _, c := range []struct {
		name     string
		isProven bool
		answer   http.HandlerFunc
	}{
		{"not proven: good", false, rawAnswer(http.StatusOK, protoType, good)},
		{"not proven: empty", false, rawAnswer(http.StatusOK, protoType, nil)},
		{"not proven: an error of the caller", false, rawAnswer(http.StatusBadRequest, jsonType, invalid)},
		{"not proven: not found", false, http.NotFound},
		{"not proven: a redirect", false, func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "/elsewhere", http.StatusTemporaryRedirect)
		}},
		{"the proof of another answer", false, func(w http.ResponseWriter, r *http.Request) {
			_, other := NewCredentials(testKeys, testLog, "", "").SignCall(&Node{Name: "a"}, r.URL.Path, hashOf(""), time.Now())
			w.Header().Set(proofHeader, other.answerProof())
			rawAnswer(http.StatusOK, protoType, good)(w, r)
		}},
		{"garbage", true, rawAnswer(http.StatusOK, protoType, []byte("garbage"))},
		{"an error that is none", true, rawAnswer(http.StatusBadRequest, jsonType, []byte("garbage"))},
		{"empty", true, rawAnswer(http.StatusOK, protoType, nil)},
		{"of another log", true, rawAnswer(http.StatusOK, protoType, mustMarshal(t, &peerv1.AskResponse{Newest: otherLog.String()}))},
		{"before the position asked for", true, rawAnswer(http.StatusOK, protoType, mustMarshal(t, &peerv1.AskResponse{Newest: positionAt(2).String()}))},
		{"packed", true, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Encoding", "gzip")
			rawAnswer(http.StatusOK, protoType, good)(w, r)
		}},
		{"1 GiB", true, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", protoType)
			writeUntilRefused(w, &written)
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			srv := httptest.NewServer(c.answer)
			t.Cleanup(srv.Close)
			bad := Node{Name: "a", Addr: strings.TrimPrefix(srv.URL, "http://"), Serves: events.AllPartitions()}
			if c.isProven {
				bad.Addr = serveNode(t, "a", c.answer)
			}
			p := newTestPeers(t, bad, startNode(t, "b", events.AllPartitions(), answerAs("b", 4)))
			p.hedgeCredit = 0 // so that node b is asked only because of the bad answer

			req := &peerv1.AskRequest{AtLeast: positionAt(3).String(), Questions: []*peerv1.Question{{}}}
			res, _, err := Forward[peerv1.AskRequest, peerv1.AskResponse](t.Context(), p, 0, askProcedure, req)
			if err != nil || res.GetAnswers()[0].GetEntries()[0].GetItem() != "b" {
				t.Errorf("with another node: got %v, %v; expected the answer of b", res, err)
			}
			if retried := p.Calls.Retried.Load(); retried != 1 {
				t.Errorf("with another node: %d calls were not answered, expected 1", retried)
			}
			_, _, err = Call[peerv1.AskRequest, peerv1.AskResponse](t.Context(), p, &bad, askProcedure, req)
			if code := apierror.Of(err).Code; code != connect.CodeUnavailable {
				t.Errorf("without another node: got %v (%v), expected unavailable", code, err)
			}
			if used := p.bytes.Used(); used != 0 {
				t.Errorf("%d bytes are still held after the calls, expected none", used)
			}
		})
	}
	if n := written.Load(); n > 3*maxAnswerBytes {
		t.Errorf("%d bytes of the large answers were read, expected at most %d", n, 3*maxAnswerBytes)
	}
}

// TestOnlyBadAnswersAreUnavailable demands that the client gets the same error as without any node
// if all nodes of a partition give bad answers.
func TestOnlyBadAnswersAreUnavailable(t *testing.T) {
	addr := serveNode(t, "a", rawAnswer(http.StatusOK, "application/proto", []byte("garbage")))
	_, err := forwardAsk(t, newTestPeers(t, Node{Name: "a", Addr: addr, Serves: events.AllPartitions()}))
	f := apierror.Of(err)
	if f.Code != connect.CodeUnavailable || f.Reason != skeinv1.Reason_REASON_NOT_HERE || !errors.Is(err, ErrBadAnswer) {
		t.Errorf("got %v, %v: %v; expected unavailable, NOT_HERE with the cause %v", f.Code, f.Reason, err, ErrBadAnswer)
	}
}

// TestAnswersCountAsMemory demands that the answers of nodes count as memory of the call that asks,
// until the call ends. If there is no memory for an answer, the call is refused, and no other node
// is asked.
func TestAnswersCountAsMemory(t *testing.T) {
	long := func(_ context.Context, _ *peerv1.AskRequest) (*peerv1.AskResponse, error) {
		return &peerv1.AskResponse{Newest: positionAt(1).String(), Answers: []*peerv1.Answer{{Next: make([]byte, 1<<20)}}}, nil
	}
	all := events.AllPartitions()
	p := newTestPeers(t, startNode(t, "a", all, long), startNode(t, "b", all, long))
	p.hedgeCredit = 0
	p.bytes = admission.NewBudget(admission.Class{Name: "bytes", Limit: 5 << 20, CallerLimit: 10 << 20})
	ctx, release := p.ChargeAnswers(t.Context(), "ann")
	ask := func() error {
		_, _, err := Forward[peerv1.AskRequest, peerv1.AskResponse](ctx, p, 0, askProcedure, &peerv1.AskRequest{})
		return err
	}
	for i := range int64(2) {
		if err := ask(); err != nil {
			t.Fatalf("answer %d was refused: %v", i+1, err)
		}
		least := (i+1)*admission.HeldPerByte<<20 - admission.FreeBytes
		if used := p.bytes.Used(); used < least {
			t.Fatalf("after %d answers of 1 MiB: %d bytes are held, expected at least %d", i+1, used, least)
		}
	}

	f := apierror.Of(ask())
	if f.Code != connect.CodeResourceExhausted || f.Reason != skeinv1.Reason_REASON_OVERLOADED {
		t.Errorf("without memory: got %v, %v; expected resource_exhausted, OVERLOADED", f.Code, f.Reason)
	}
	if retried := p.Calls.Retried.Load(); retried != 0 {
		t.Errorf("another node was asked %d times, expected 0", retried)
	}

	release()
	if used := p.bytes.Used(); used != 0 {
		t.Errorf("%d bytes are still held after the call, expected none", used)
	}
}

// TestMessagesOfStreamsAreBounded demands that a stream may be longer than any answer, but its
// messages may not, and that each message counts as memory until it was processed.
func TestMessagesOfStreamsAreBounded(t *testing.T) {
	const procedure = "/stream"
	const messages, size = 80, 1 << 20
	message := mustMarshal(t, &peerv1.RowsResponse{Rows: make([]byte, size)})
	framed := slices.Concat([]byte{0}, binary.BigEndian.AppendUint32(nil, uint32(len(message))), message)
	var written atomic.Int64
	addr := serveNode(t, "a", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/connect+proto")
		for range messages {
			_, _ = w.Write(framed)
		}
		_, _ = w.Write(binary.BigEndian.AppendUint32([]byte{0}, 1<<30))
		writeUntilRefused(w, &written)
	}))
	n := Node{Name: "a", Addr: addr}
	p := newTestPeers(t, n) // the node must be alive, or its stream would end after some time
	p.bytes = admission.NewBudget(admission.Class{Name: "bytes", Limit: 64 << 20, CallerLimit: 64 << 20})
	got := 0
	_, err := Stream(t.Context(), p, &n, time.Hour, procedure, &peerv1.RowsRequest{}, func(int64) {},
		func(*peerv1.RowsResponse) error {
			got++
			if used := p.bytes.Used(); used < size || used > 3*size {
				t.Errorf("%d bytes are held for a message of %d bytes, expected %d to %d", used, size, size, 3*size)
			}
			return nil
		})

	if got != messages {
		t.Errorf("got %d messages, expected %d", got, messages)
	}
	if f := apierror.Of(err); f.Code != connect.CodeUnavailable || !errors.Is(err, ErrBadAnswer) {
		t.Errorf("the large message: got %v, %v; expected unavailable with the cause %v", f.Code, err, ErrBadAnswer)
	}
	if n := written.Load(); n > 4*maxMessageBytes {
		t.Errorf("%d bytes of the large message were read, expected at most %d", n, 4*maxMessageBytes)
	}
	if used := p.bytes.Used(); used != 0 {
		t.Errorf("%d bytes are still held after the stream, expected none", used)
	}
}
