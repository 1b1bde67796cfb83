package peers

import (
	"bytes"
	"cmp"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/gateway/pagetoken"
)

// In each call, two nodes prove to each other that they have the same keys of page tokens
// (docs/decisions/0043-proofs-between-nodes.md):
//
//	caller ── Authorization: Skein-Node TIME NONCE CALLER BODY-HASH MAC ──▶ callee
//	caller ◀── Skein-Node-Proof: MAC of that MAC ───────────────────────── callee
//
// The first MAC covers the other fields of its header, the name and address of the callee, and the
// path. The secret of both MACs is derived from the keys and the id of the log.
//
// The callee refuses a call whose time differs too much from its own, so that a recorded call
// cannot be repeated later. The refusal has the callee's time with a MAC, and the caller repeats
// the call once with that time. So the clocks of nodes may differ.
const (
	authScheme  = "Skein-Node"
	proofHeader = "Skein-Node-Proof"
	timeHeader  = "Skein-Node-Time"
	// maxProofAge is how much the time of a call may differ from the time of the callee. It leaves
	// time for the call to arrive, and tolerates small corrections of a clock between two calls.
	maxProofAge = 30 * time.Second
	// peerProofPurpose, followed by the id of the log in hexadecimal, is the purpose for which the
	// secrets are derived from the keys. Secrets for another purpose or log differ.
	peerProofPurpose = "nodes of log "
	// routerName is the name under which routers call. They have no name of their own.
	routerName = "router"
)

// Errors of [Credentials.VerifyCall].
var (
	errNoProof    = errors.New("not a node of this cluster: all nodes have the same --page-token-keys, and each the --node-addr by which it is called")
	errStaleProof = errors.New("the time of the call is not that of this node")
)

// Credentials are what one node uses to prove to others that it belongs to the cluster.
type Credentials struct {
	// name and addr are the name and address of this node. They are empty for a router, which no
	// node calls.
	name, addr string
	// secrets has one secret per key. SignCall signs with the first one, and VerifyCall accepts any
	// of them, so that operators can change keys while the cluster runs.
	secrets [][]byte
}

// NewCredentials returns the credentials of a node in the cluster of a log. name and addr are empty
// for a router.
func NewCredentials(keys pagetoken.KeyRing, log events.LogID, name, addr string) *Credentials {
	purpose := peerProofPurpose + hex.EncodeToString(log[:])
	return &Credentials{name: name, addr: addr, secrets: keys.DeriveSecrets(purpose)}
}

// CallProof is the proof of one call between nodes. The callee uses it to prove its answer, and the
// caller uses it to verify that proof.
type CallProof struct {
	// secret is the secret that signed the call, and mac the MAC of the call.
	secret, mac []byte
	// bodyHash is the hash of the body, as [HashBody] returns it.
	bodyHash string
	// Caller is the name that the caller claims for itself.
	Caller string
	// Nonce is random and different for each call.
	Nonce string
}

// computeMAC returns the HMAC-SHA256 of a purpose and some parts. In the input of the HMAC, the
// purpose and each part follow their lengths, so that different lists never have the same input.
func computeMAC(secret []byte, purpose string, parts ...string) []byte {
	mac := hmac.New(sha256.New, secret)
	message := make([]byte, 0, 256)
	for _, part := range append([]string{purpose}, parts...) {
		message = binary.AppendUvarint(message, uint64(len(part)))
		message = append(message, part...)
	}
	mac.Write(message)
	return mac.Sum(nil)
}

// SignCall returns the Authorization header of a call to a node, and the proof with which to verify
// the answer. now is the time that the clock of the callee should show, and bodyHash is the hash of
// the body, as [HashBody] returns it.
func (c *Credentials) SignCall(
	callee *Node, path, bodyHash string, now time.Time,
) (authorization string, p *CallProof) {
	p = &CallProof{secret: c.secrets[0], bodyHash: bodyHash, Caller: cmp.Or(c.name, routerName), Nonce: rand.Text()}
	micros := strconv.FormatInt(now.UnixMicro(), 10)
	p.mac = computeMAC(p.secret, "call", micros, p.Nonce, p.Caller, p.bodyHash, callee.Name, callee.Addr, path)

	fields := []string{authScheme, micros, p.Nonce, p.Caller, p.bodyHash, hex.EncodeToString(p.mac)}
	return strings.Join(fields, " "), p
}

// VerifyCall verifies the Authorization header of a call to this node. The caller of VerifyCall
// must then check the body with [CallProof.HasBody]. If only the time is wrong, VerifyCall returns
// the proof and [errStaleProof]: the call must be refused, and the proof serves only to send the
// time of this node.
func (c *Credentials) VerifyCall(authorization, path string, now time.Time) (*CallProof, error) {
	fields := strings.Split(authorization, " ")
	if len(fields) != 6 || fields[0] != authScheme {
		return nil, errNoProof
	}
	micros := fields[1]
	nonce := fields[2]
	caller := fields[3]
	bodyHash := fields[4]
	callMicros, err := strconv.ParseInt(micros, 10, 64)
	if err != nil {
		return nil, errNoProof
	}
	mac, err := hex.DecodeString(fields[5])
	if err != nil {
		return nil, errNoProof
	}

	// While operators change the keys, the caller may sign with another key than this node does.
	for _, secret := range c.secrets {
		if !hmac.Equal(mac, computeMAC(secret, "call", micros, nonce, caller, bodyHash, c.name, c.addr, path)) {
			continue
		}
		p := &CallProof{secret: secret, mac: mac, bodyHash: bodyHash, Caller: caller, Nonce: nonce}
		if now.Sub(time.UnixMicro(callMicros)).Abs() > maxProofAge {
			return p, errStaleProof
		}
		return p, nil
	}
	return nil, errNoProof
}

// HashBody returns the SHA-256 of a body, in hexadecimal.
func HashBody(body []byte) string {
	sum := sha256.Sum256(body)
	return hex.EncodeToString(sum[:])
}

// HasBody reports whether the call was made with this body.
func (p *CallProof) HasBody(body []byte) bool { return p.bodyHash == HashBody(body) }

// answerProof returns the proof of the answer to this call. Only a node with the secret can make
// it, and it proves no answer to another call. It does not cover the body of the answer.
func (p *CallProof) answerProof() string {
	return hex.EncodeToString(computeMAC(p.secret, "answer", string(p.mac)))
}

// AppendHeader appends the HTTP header that proves the answer, as one line, to the head of an
// answer.
func (p *CallProof) AppendHeader(head []byte) []byte {
	head = append(head, proofHeader+": "...)
	head = append(head, p.answerProof()...)
	return append(head, "\r\n"...)
}

// isProvenBy reports whether proof is the proof of the answer to this call.
func (p *CallProof) isProvenBy(proof string) bool {
	return hmac.Equal([]byte(proof), []byte(p.answerProof()))
}

// timeHeaderValue returns the value of timeHeader, with which the callee sends its own time to the
// caller of a stale call.
func (p *CallProof) timeHeaderValue(now time.Time) string {
	micros := strconv.FormatInt(now.UnixMicro(), 10)
	return micros + " " + hex.EncodeToString(computeMAC(p.secret, "time", string(p.mac), micros))
}

// parseTimeHeader returns the time in a value of timeHeader. ok is false if the header is missing,
// or if the callee of this call has not made the value.
func (p *CallProof) parseTimeHeader(header string) (now time.Time, ok bool) {
	micros, mac, _ := strings.Cut(header, " ")
	n, err := strconv.ParseInt(micros, 10, 64)
	want := hex.EncodeToString(computeMAC(p.secret, "time", string(p.mac), micros))
	return time.UnixMicro(n), err == nil && hmac.Equal([]byte(mac), []byte(want))
}

// Protect returns a handler that accepts only calls of other nodes, and proves its answers. A body
// may have at most maxBody bytes.
func (c *Credentials) Protect(next http.Handler, maxBody int) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p, err := c.VerifyCall(r.Header.Get("Authorization"), r.URL.Path, time.Now())
		if err != nil {
			if p != nil { // the caller is a node of the cluster, but its clock differs
				w.Header().Set(timeHeader, p.timeHeaderValue(time.Now()))
			}
			http.Error(w, err.Error(), http.StatusUnauthorized)
			return
		}

		// Read and verify the whole body first, because a body that the caller has not signed must
		// have no effect.
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, int64(maxBody)))
		switch {
		case err != nil:
			http.Error(w, err.Error(), http.StatusBadRequest)
		case !p.HasBody(body):
			http.Error(w, errNoProof.Error(), http.StatusUnauthorized)
		default:
			r.Body = io.NopCloser(bytes.NewReader(body))
			w.Header().Set(proofHeader, p.answerProof())
			next.ServeHTTP(w, r)
		}
	})
}
