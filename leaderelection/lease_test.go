package leaderelection

import (
	"encoding/json"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

func TestRenewTimeAlwaysMovesByASecond(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 999_999_999, time.UTC)
	lease := acquired(nil, metav1.ObjectMeta{}, "a", 15*time.Second, now)
	for _, step := range []time.Duration{0, time.Millisecond, 100 * time.Millisecond, 3 * time.Second, -time.Hour,
		time.Millisecond} {
		now = now.Add(step)
		next := renewed(lease, 15*time.Second, now)
		before, err := json.Marshal(resourcelock.LeaseSpecToLeaderElectionRecord(&lease.Spec))
		require.NoError(t, err)
		after, err := json.Marshal(resourcelock.LeaseSpecToLeaderElectionRecord(&next.Spec))
		require.NoError(t, err)
		require.NotEqual(t, string(before), string(after), "a client-go challenger compares these")
		require.Equal(t, lease.Spec.AcquireTime, next.Spec.AcquireTime)
		lease = next
	}
}

func TestToken(t *testing.T) {
	lease := acquired(&coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{UID: "u",
		Labels: map[string]string{"kept": "yes"}}}, metav1.ObjectMeta{}, "a", time.Second, time.Now())
	require.Equal(t, "u/1/a", tokenOf(lease).String())
	require.Equal(t, "yes", lease.Labels["kept"])
	require.True(t, tokenOf(lease).names(renewed(lease, time.Second, time.Now())))
	require.False(t, tokenOf(lease).names(released(lease, time.Now())))
	require.False(t, tokenOf(lease).names(nil))
}

// FuzzRecord: whatever is in a Lease, a challenger waits for it unless it is the mark of a release or our own claim,
// and a claim of it is a record that the API accepts, with another term.
func FuzzRecord(f *testing.F) {
	f.Add("", int32(1), int32(0), int64(0), int64(0), true)
	f.Add("", int32(15), int32(7), int64(1), int64(2), true)
	f.Add("x", int32(math.MaxInt32), int32(math.MaxInt32), int64(5), int64(5), false)
	cfg := Config{}.withDefaults()
	f.Fuzz(func(t *testing.T, holder string, seconds, term int32, acquiredAt, renewedAt int64, times bool) {
		lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{UID: "u", ResourceVersion: "1"},
			Spec: coordinationv1.LeaseSpec{
				HolderIdentity: &holder, LeaseDurationSeconds: &seconds, LeaseTransitions: new(max(term, 0)),
			}}
		if times {
			lease.Spec.AcquireTime = &metav1.MicroTime{Time: time.UnixMicro(acquiredAt)}
			lease.Spec.RenewTime = &metav1.MicroTime{Time: time.UnixMicro(renewedAt)}
		}
		v := newView()
		require.True(t, v.see(lease, "", 0.5))
		require.False(t, v.see(lease.DeepCopy(), "", 0.1), "the same version is no news")
		wait := v.get().wait(cfg)
		if holder == "" && seconds == 1 && times && acquiredAt == renewedAt {
			require.Zero(t, wait)
		} else {
			require.GreaterOrEqual(t, wait, cfg.LeaseDuration)
			require.LessOrEqual(t, wait, cfg.MaxLeaseDuration)
		}
		claim := acquired(lease, metav1.ObjectMeta{}, "me", cfg.LeaseDuration, time.UnixMicro(renewedAt))
		require.NotEqual(t, value(lease.Spec.LeaseTransitions), value(claim.Spec.LeaseTransitions))
		require.GreaterOrEqual(t, value(claim.Spec.LeaseTransitions), int32(0))
		require.Positive(t, value(claim.Spec.LeaseDurationSeconds))
		v.attempting(claim)
		back := claim.DeepCopy()
		back.ResourceVersion = "2"
		require.True(t, v.see(back, "", 0))
		require.Zero(t, v.get().wait(cfg), "our own claim is ours")
		free := released(back, time.Now())
		require.True(t, isReleased(free))
	})
}

// TestEditsDoNotMakeAReleaseOfAClaim: seed 6770 of the random runs wiped the holder out and then set the duration to a
// second.
func TestEditsDoNotMakeAReleaseOfAClaim(t *testing.T) {
	claim := acquired(nil, metav1.ObjectMeta{}, "a", time.Second, time.Now())
	require.False(t, isReleased(wipe(claim.DeepCopy())))
	require.False(t, isReleased(wipe(renewed(claim, time.Second, time.Now()))))
	require.True(t, isReleased(released(claim, time.Now())))
}
