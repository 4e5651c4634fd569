// Package certs makes the certificates of one etcd cluster, and decides when they are renewed. It has no I/O: an
// [Authority] is the content of a Secret, and [Authority.Next] is a function from what was observed to the next
// content.
//
// # Renewal of leaf certificates
//
// etcd reads its certificates from their files at each handshake, so a new one needs no restart. [Authority.Leaf] makes
// a new certificate when a third of its life is left.
//
// # Rotation of the CA
//
// etcd reads the file of CAs that it trusts only when it starts. So a rotation has two rolling restarts:
//
//	Steady      one CA signs, and all trust it. When a third of its life is left, or the spec asks for it, a second CA
//	            is made.
//	Spreading   the first CA signs. Members that start trust both. When all members do, and clients had time to read
//	            the CAs again, the second CA takes over.
//	Replacing   the second CA signs. Trust in both goes on. When each member serves a certificate of the second CA, and
//	            clients had time to read theirs again, the first CA is dropped, and members that start trust the second
//	            one only: the next step is Steady.
//
// Invariant: each certificate in use is of a CA that each member trusts. Spreading ends when all members trust the
// second CA, so both kinds of certificates are good while Replacing lasts. Replacing ends when no certificate of the
// first CA is in use.
//
// # Keys
//
// A [Key] prints as "(private key)" with each verb of package fmt.
//
// # Reading order
//
// key.go: keys and pairs. authority.go: the CA and its steps. leaf.go: what it signs.
package certs
