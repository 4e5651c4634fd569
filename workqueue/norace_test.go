//go:build !race

package workqueue

const raceDetector = false
