// Package house tests what no single package can promise: that the README and the package docs are true, that
// imports run one way, that functions, types and lines stay short, and that go get works.
package house
