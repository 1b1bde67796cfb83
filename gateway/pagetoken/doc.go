// Package pagetoken makes the tokens with which a caller continues a list: signed, bound to the list that they continue, and to the
// position that the page before was read at.
//
//	page 1 ──▶ Token{List, Position, Cursor} ──KeyRing.Sign──▶ text ──caller──▶ KeyRing.Verify ──▶ page 2
//
// A token holds no state of the service: any process with the same key ring continues the list.
package pagetoken
