package main

import (
	"testing"

	"github.com/stretchr/testify/require"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
)

// Load that is twice what it should be doubles the pods; less load takes them back when the window has passed.
func TestLoadDoublesAndFalls(t *testing.T) {
	inLab(t, 3, func(l *lab) {
		l.metrics.all("1400m")
		l.create(hpa("web", 1, 10, with(cpu(70))))
		require.Equal(t, 6, l.size())
		require.Equal(t, "True SucceededRescale: the HPA controller was able to update the target scale to 6",
			l.says("web", autoscalingv2.AbleToScale))
		require.Equal(t, []string{"Normal SuccessfulRescale New size: 6; reason: cpu resource utilization " +
			"(percentage " +
			"of request) above target"}, l.told())
		l.follow("web")
		l.metrics.all("350m")
		for range 20 {
			l.look()
			require.Equal(t, 6, l.size())
		}
		l.look()
		require.Equal(t, 3, l.size())
	})
}
