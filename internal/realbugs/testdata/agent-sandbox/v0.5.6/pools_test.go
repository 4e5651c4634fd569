package check

import (
	ctrl "sigs.k8s.io/controller-runtime"

	"sigs.k8s.io/agent-sandbox/extensions/controllers"
)

func warmPools(mgr ctrl.Manager) *controllers.SandboxWarmPoolReconciler {
	return &controllers.SandboxWarmPoolReconciler{Client: mgr.GetClient(), Scheme: mgr.GetScheme(),
		MaxBatchSize: 300, EnableWarmPoolEviction: true,
		Recorder: mgr.GetEventRecorder("sandboxwarmpool-controller")}
}
