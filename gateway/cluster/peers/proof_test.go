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

// TestProofHoldsForOneCallToOneNode checks that a proof is refused by another node, for another
// call, after its time, and in another cluster. Only the node that was called can prove the answer.
func TestProofHoldsForOneCallToOneNode(t *testing.T) {
	const path, body = "/ask", "body"
	var answered atomic.Int64
	addr := serveNode(t, "b", http.HandlerFunc(func(http.ResponseWriter, *http.Request) { answered.Add(1) }))
	callee := Node{Name: "b", Addr: addr}
	// routerCredentials returns the credentials of a router, which has no name and no address.
	routerCredentials := func(keys pagetoken.KeyRing, log events.LogID) *Credentials { return NewCredentials(keys, log, "", "") }
	valid := routerCredentials(testKeys, testLog)

	// Each case signs one call and then makes the call /ask with "body" to node b.
	for _, c := range []struct {
		name       string
		caller     *Credentials
		callee     Node
		path, body string
		age        time.Duration // of the proof
		wantStatus int
	}{
		{"the call itself", valid, callee, path, body, 0, http.StatusOK},
		{"a call of a clock that is a little behind", valid, callee, path, body, maxProofAge / 2, http.StatusOK},
		{"of a call to a node with another name", valid, Node{Name: "c", Addr: addr}, path, body, 0, http.StatusUnauthorized},
		{"of a call to this node at another address", valid, Node{Name: "b", Addr: "127.0.0.1:1"}, path, body, 0, http.StatusUnauthorized},
		{"of a call of another method", valid, callee, "/rows", body, 0, http.StatusUnauthorized},
		{"of a call with another body", valid, callee, path, "other", 0, http.StatusUnauthorized},
		{"of a call some time ago", valid, callee, path, body, 2 * maxProofAge, http.StatusUnauthorized},
		{"of a call that was dated ahead", valid, callee, path, body, -2 * maxProofAge, http.StatusUnauthorized},
		{"of a node with other keys", routerCredentials(otherKeys(t), testLog), callee, path, body, 0, http.StatusUnauthorized},
		{"of a node with another log", routerCredentials(testKeys, events.LogID{2}), callee, path, body, 0, http.StatusUnauthorized},
	} {
		t.Run(c.name, func(t *testing.T) {
			answeredBefore := answered.Load()
			authorization, proof := c.caller.SignCall(&c.callee, c.path, hashOf(c.body), time.Now().Add(-c.age))
			req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+addr+path, strings.NewReader(body))
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set("Authorization", authorization)
			res, err := http.DefaultClient.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			if err := res.Body.Close(); err != nil {
				t.Fatal(err)
			}

			if res.StatusCode != c.wantStatus {
				t.Errorf("got status %d, want %d", res.StatusCode, c.wantStatus)
			}
			isAccepted := c.wantStatus == http.StatusOK
			if isCalled := answered.Load() > answeredBefore; isCalled != isAccepted {
				t.Errorf("the method was called: got %t, want %t", isCalled, isAccepted)
			}
			answerProof := res.Header.Get(proofHeader)
			if isProven := proof.isProvenBy(answerProof); isProven != isAccepted {
				t.Errorf("the answer is proven: got %t, want %t", isProven, isAccepted)
			}

			// Whoever records an answer must not be able to use it as the answer to the same call
			// later.
			_, nextProof := valid.SignCall(&callee, path, hashOf(body), time.Now())
			if nextProof.isProvenBy(answerProof) {
				t.Error("the proof of the answer also holds for the same call when it is made again, want only for one call")
			}
		})
	}
}

// TestClocksOfNodesMayDiffer checks that a node whose clock differs by an hour is called again with
// its own time, and from then on always with that time.
func TestClocksOfNodesMayDiffer(t *testing.T) {
	for name, offset := range map[string]time.Duration{"ahead": time.Hour, "behind": -time.Hour} {
		t.Run(name, func(t *testing.T) {
			var answered atomic.Int64
			countAndAnswer := func(ctx context.Context, req *peerv1.AskRequest) (*peerv1.AskResponse, error) {
				answered.Add(1)
				return answerAs("a", 1)(ctx, req)
			}
			p := newTestPeers(t, startNode(t, "a", events.AllPartitions(), countAndAnswer))
			p.setClockOffset("a", offset) // as if the clock of this process had changed by that much

			if got, err := forwardAsk(t, p); err != nil || got != "a" {
				t.Errorf("got the answer of %q and the error %v, want the answer of a", got, err)
			}
			if got := p.clockOffset("a").Abs(); got > maxProofAge {
				t.Errorf("offset of the clock after the call: got %v, want at most %v", got, maxProofAge)
			}
			if got := answered.Load(); got != 1 {
				t.Errorf("calls that the node answered: got %d, want 1", got)
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

// TestBadAnswerIsTheFaultOfTheNode checks that an answer that is not proven, cannot be decoded, is
// of another log, is older than the demanded position, is compressed or too large is never passed
// on. The next node is asked. Without one, the call fails as unavailable.
func TestBadAnswerIsTheFaultOfTheNode(t *testing.T) {
	t.Parallel()
	const protoType = "application/proto"
	const jsonType = "application/json"
	valid := mustMarshal(t, &peerv1.AskResponse{
		Newest: positionAt(5).String(), Answers: []*peerv1.Answer{{Entries: []*peerv1.Entry{{Item: "forged"}}}},
	})
	errorOfCaller := []byte(`{"code":"invalid_argument","message":"forged"}`)
	ofOtherLog := mustMarshal(t, &peerv1.AskResponse{Newest: events.Position{Log: [4]byte{2}, Epoch: 1, Seq: 5}.String()})
	ofThePast := mustMarshal(t, &peerv1.AskResponse{Newest: positionAt(2).String()})
	var written atomic.Int64 // bytes of the large answers

	redirect := func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "/elsewhere", http.StatusTemporaryRedirect)
	}
	proveOtherAnswer := func(w http.ResponseWriter, r *http.Request) {
		_, proof := NewCredentials(testKeys, testLog, "", "").SignCall(&Node{Name: "a"}, r.URL.Path, hashOf(""), time.Now())
		w.Header().Set(proofHeader, proof.answerProof())
		rawAnswer(http.StatusOK, protoType, valid)(w, r)
	}
	compress := func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Encoding", "gzip")
		rawAnswer(http.StatusOK, protoType, valid)(w, r)
	}
	answerWithoutEnd := func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", protoType)
		writeUntilRefused(w, &written)
	}

	for _, c := range []struct {
		name     string
		isProven bool // whether the node proves the answer
		answer   http.HandlerFunc
	}{
		{"not proven: good", false, rawAnswer(http.StatusOK, protoType, valid)},
		{"not proven: empty", false, rawAnswer(http.StatusOK, protoType, nil)},
		{"not proven: an error of the caller", false, rawAnswer(http.StatusBadRequest, jsonType, errorOfCaller)},
		{"not proven: not found", false, http.NotFound},
		{"not proven: a redirect", false, redirect},
		{"the proof of another answer", false, proveOtherAnswer},
		{"garbage", true, rawAnswer(http.StatusOK, protoType, []byte("garbage"))},
		{"an error that cannot be decoded", true, rawAnswer(http.StatusBadRequest, jsonType, []byte("garbage"))},
		{"empty", true, rawAnswer(http.StatusOK, protoType, nil)},
		{"of another log", true, rawAnswer(http.StatusOK, protoType, ofOtherLog)},
		{"before the position asked for", true, rawAnswer(http.StatusOK, protoType, ofThePast)},
		{"compressed", true, compress},
		{"1 GiB", true, answerWithoutEnd},
	} {
		t.Run(c.name, func(t *testing.T) {
			bad := Node{Name: "a", Serves: events.AllPartitions()}
			if c.isProven {
				bad.Addr = serveNode(t, "a", c.answer)
			} else {
				srv := httptest.NewServer(c.answer)
				t.Cleanup(srv.Close)
				bad.Addr = strings.TrimPrefix(srv.URL, "http://")
			}
			p := newTestPeers(t, bad, startNode(t, "b", events.AllPartitions(), answerAs("b", 4)))
			p.hedgeCredit = 0 // so that node b is asked only because of the bad answer

			// With another node, that node answers.
			req := &peerv1.AskRequest{AtLeast: positionAt(3).String(), Questions: []*peerv1.Question{{}}}
			res, _, err := Forward[peerv1.AskRequest, peerv1.AskResponse](t.Context(), p, 0, askProcedure, req)
			if err != nil || res.GetAnswers()[0].GetEntries()[0].GetItem() != "b" {
				t.Errorf("Forward: got %v and the error %v, want the answer of b", res, err)
			}
			if got := p.Calls.Retried.Load(); got != 1 {
				t.Errorf("calls that were not answered: got %d, want 1", got)
			}

			// Without another node, there is no answer.
			_, _, err = Call[peerv1.AskRequest, peerv1.AskResponse](t.Context(), p, &bad, askProcedure, req)
			if got := apierror.Of(err).Code; got != connect.CodeUnavailable {
				t.Errorf("Call of the bad node: got the code %v (%v), want unavailable", got, err)
			}
			if got := p.bytes.Used(); got != 0 {
				t.Errorf("bytes that are held after the calls: got %d, want 0", got)
			}
		})
	}
	// There were two calls. Buffers of the connections may take some more.
	if got := written.Load(); got > 3*maxAnswerBytes {
		t.Errorf("bytes of the large answers that were read: got %d, want at most %d", got, 3*maxAnswerBytes)
	}
}

// TestOnlyBadAnswersAreUnavailable checks that the client gets the same error as without any node
// if all nodes of a partition give bad answers.
func TestOnlyBadAnswersAreUnavailable(t *testing.T) {
	t.Parallel()
	addr := serveNode(t, "a", rawAnswer(http.StatusOK, "application/proto", []byte("garbage")))
	_, err := forwardAsk(t, newTestPeers(t, Node{Name: "a", Addr: addr, Serves: events.AllPartitions()}))
	f := apierror.Of(err)
	if f.Code != connect.CodeUnavailable || f.Reason != skeinv1.Reason_REASON_NOT_HERE {
		t.Errorf("got the code %v and the reason %v, want unavailable and NOT_HERE", f.Code, f.Reason)
	}
	if !errors.Is(err, ErrBadAnswer) {
		t.Errorf("got the error %v, want %v as its cause", err, ErrBadAnswer)
	}
}

// TestAnswersCountAsMemory checks that the answers of nodes count as memory of the call that asks,
// until the call ends. If there is no memory for an answer, the call is refused, and no other node
// is asked.
func TestAnswersCountAsMemory(t *testing.T) {
	const answerBytes = 1 << 20
	answerLong := func(_ context.Context, _ *peerv1.AskRequest) (*peerv1.AskResponse, error) {
		return &peerv1.AskResponse{Newest: positionAt(1).String(), Answers: []*peerv1.Answer{{Next: make([]byte, answerBytes)}}}, nil
	}
	all := events.AllPartitions()
	// If node a is slow, node b is asked in addition. It does not answer, because its answer would
	// count, too.
	p := newTestPeers(t, startNode(t, "a", all, answerLong), startNode(t, "b", all, hangUntilCanceled))

	// Each byte of an answer counts twice (admission.HeldPerByte), so there is memory for two
	// answers.
	p.bytes = admission.NewBudget(admission.Class{Name: "bytes", Limit: 5 * answerBytes, CallerLimit: 10 * answerBytes})
	ctx, release := p.ChargeAnswers(t.Context(), "ann")
	ask := func() error {
		_, _, err := Forward[peerv1.AskRequest, peerv1.AskResponse](ctx, p, 0, askProcedure, &peerv1.AskRequest{})
		return err
	}
	for i := range int64(2) {
		if err := ask(); err != nil {
			t.Fatalf("answer %d: got the error %v, want none", i+1, err)
		}
		minWant := (i+1)*admission.HeldPerByte*answerBytes - admission.FreeBytes
		if got := p.bytes.Used(); got < minWant {
			t.Fatalf("bytes that are held after %d answers: got %d, want at least %d", i+1, got, minWant)
		}
	}

	f := apierror.Of(ask())
	if f.Code != connect.CodeResourceExhausted || f.Reason != skeinv1.Reason_REASON_OVERLOADED {
		t.Errorf("without memory: got the code %v and the reason %v, want resource_exhausted and OVERLOADED", f.Code, f.Reason)
	}
	if got := p.Calls.Retried.Load(); got != 0 {
		t.Errorf("calls after which another node was asked: got %d, want 0", got)
	}

	release()
	if got := p.bytes.Used(); got != 0 {
		t.Errorf("bytes that are held after the call: got %d, want 0", got)
	}
}

// TestMessagesOfStreamsAreBounded checks that a stream may be longer than any answer, but its
// messages may not, and that each message counts as memory until it was processed.
func TestMessagesOfStreamsAreBounded(t *testing.T) {
	const messages = 80
	const messageBytes = 1 << 20

	// In the Connect protocol, a byte of flags and the length precede a message. After the small
	// messages, the node begins one of 1 GiB.
	message := mustMarshal(t, &peerv1.RowsResponse{Rows: make([]byte, messageBytes)})
	framed := slices.Concat([]byte{0}, binary.BigEndian.AppendUint32(nil, uint32(len(message))), message)
	largePrefix := binary.BigEndian.AppendUint32([]byte{0}, 1<<30)
	var written atomic.Int64 // bytes of the large message
	addr := serveNode(t, "a", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/connect+proto")
		for range messages {
			_, _ = w.Write(framed)
		}
		_, _ = w.Write(largePrefix)
		writeUntilRefused(w, &written)
	}))

	n := Node{Name: "a", Addr: addr}
	p := newTestPeers(t, n) // the node must be alive, or its stream would end after some time
	p.bytes = admission.NewBudget(admission.Class{Name: "bytes", Limit: 64 << 20, CallerLimit: 64 << 20})
	received := 0
	receive := func(*peerv1.RowsResponse) error {
		received++
		if got := p.bytes.Used(); got < messageBytes || got > 3*messageBytes {
			t.Errorf("bytes that are held for a message of %d bytes: got %d, want %d to %d", messageBytes, got, messageBytes, 3*messageBytes)
		}
		return nil
	}
	_, err := Stream(t.Context(), p, &n, time.Hour, streamProcedure, &peerv1.RowsRequest{}, func(int64) {}, receive)

	if received != messages {
		t.Errorf("messages: got %d, want %d", received, messages)
	}
	if got := apierror.Of(err).Code; got != connect.CodeUnavailable || !errors.Is(err, ErrBadAnswer) {
		t.Errorf("the large message: got the code %v and the error %v, want unavailable with the cause %v", got, err, ErrBadAnswer)
	}
	if got := written.Load(); got > 4*maxMessageBytes {
		t.Errorf("bytes of the large message that were read: got %d, want at most %d", got, 4*maxMessageBytes)
	}
	if got := p.bytes.Used(); got != 0 {
		t.Errorf("bytes that are held after the stream: got %d, want 0", got)
	}
}
