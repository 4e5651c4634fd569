// Package house tests what no single package can promise: that the README is true, that imports run one way, and that
// go get works.
package house
