package peers

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
)

// nodeClient sends HTTP requests to one node. It signs each request, and accepts only answers that
// the node has proven. It implements [connect.HTTPClient].
type nodeClient struct {
	*Peers
	http *http.Client
	node Node
}

var errBodyNotRepeatable = errors.New("peers: the body of a call can be read only once")

// Do sends a request. It implements [connect.HTTPClient].
func (c *nodeClient) Do(req *http.Request) (*http.Response, error) {
	// The signature covers the body, so the body is read here for its hash, and again to be sent.
	hash := sha256.New()
	if _, err := io.Copy(hash, req.Body); err != nil {
		return nil, err
	}
	bodyHash := hex.EncodeToString(hash.Sum(nil))

	res, proof, err := c.send(req, bodyHash)
	if err != nil {
		return nil, err
	}

	nodeTime, isRefusedForTime := proof.parseTimeHeader(res.Header.Get(timeHeader))
	if isRefusedForTime {
		// The node has refused the call because its clock differs from that of this process. The
		// clock of the node decides, so the call is repeated with its time.
		_ = res.Body.Close()
		c.setClockOffset(c.node.Name, time.Until(nodeTime))
		res, proof, err = c.send(req, bodyHash)
		if err != nil {
			return nil, err
		}
	}

	if !proof.isProvenBy(res.Header.Get(proofHeader)) {
		return nil, c.unprovenAnswerError(res)
	}
	res.Body = c.limitBody(req.Context(), c.node.Name, res.Body)
	return res, nil
}

// send signs a request, at the time that the clock of the node should show, and sends it. It also
// returns the proof with which to verify the answer.
func (c *nodeClient) send(req *http.Request, bodyHash string) (*http.Response, *CallProof, error) {
	if req.GetBody == nil {
		return nil, nil, errBodyNotRepeatable
	}
	var err error
	req.Body, err = req.GetBody()
	if err != nil {
		return nil, nil, err
	}

	nodeTime := time.Now().Add(c.clockOffset(c.node.Name))
	authorization, proof := c.credentials.SignCall(&c.node, req.URL.Path, bodyHash, nodeTime)
	req.Header.Set("Authorization", authorization)
	res, err := c.http.Do(req) //nolint:gosec // the address is that of a node, which must prove itself
	return res, proof, err
}

// unprovenAnswerError returns the error for an answer that does not prove to come from the node. It
// quotes the beginning of the answer.
func (c *nodeClient) unprovenAnswerError(res *http.Response) error {
	const quotedBytes = 200
	text, _ := io.ReadAll(io.LimitReader(res.Body, quotedBytes)) // if it fails, quote what was read
	_ = res.Body.Close()
	return badAnswer(c.node.Name, fmt.Sprintf("does not prove to have the same --page-token-keys and to be called by its --node-addr %s (HTTP %s: %q)",
		c.node.Addr, res.Status, strings.TrimSpace(string(text))))
}

// clockOffset returns by how much the clock of a node is ahead of the clock of this process. It
// returns 0 if the node has never refused a call because of its time.
func (p *Peers) clockOffset(name string) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.clockOffsets[name]
}

// setClockOffset records by how much the clock of a node is ahead of the clock of this process.
func (p *Peers) setClockOffset(name string, offset time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.clockOffsets[name] = offset
}
