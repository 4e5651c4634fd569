package check

import (
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/lws/pkg/controllers"
)

func setUp(mgr ctrl.Manager) error {
	recorder := mgr.GetEventRecorderFor("leaderworkerset")
	err := controllers.NewLeaderWorkerSetReconciler(mgr.GetClient(), mgr.GetScheme(), recorder).SetupWithManager(mgr)
	if err != nil {
		return err
	}
	return controllers.NewPodReconciler(mgr.GetClient(), mgr.GetScheme(), recorder, nil).SetupWithManager(mgr)
}
