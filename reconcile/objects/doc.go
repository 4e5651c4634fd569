// Package objects has what most Reconcilers do to objects: set conditions, write a status, finalize, claim, create and
// apply. The loop (package reconcile) does not need it, and it does not need the loop: each function is called with a
// context and a client, and sends its requests with both.
package objects
