//go:build race

package workqueue

// raceDetector makes everything ten times as slow: the tests that try many cases try fewer then.
const raceDetector = true
