// Package pagetoken makes and verifies the tokens with which a caller continues a list. A token is
// signed, and bound to its list and to the position at which the last page was read.
//
//	page 1 ──▶ Token{List, Position, Cursor} ──KeyRing.Sign──▶ text ──caller──▶ KeyRing.Verify ──▶ page 2
//
// The service stores nothing about a token: any process with the same key ring can continue the
// list.
package pagetoken
