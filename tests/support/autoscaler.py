"""Compute the number of replicas as KEDA's scalers and the Horizontal Pod Autoscaler that KEDA creates do.

The formulas are those of Kubernetes' controller (kubernetes.io/docs/tasks/run-application/horizontal-pod-autoscale) for
an external metric with an average value, and of KEDA's scaler for Kafka. The caller passes the time as a number.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil
from typing import Any

#: The controller's default (--horizontal-pod-autoscaler-tolerance): a smaller deviation changes nothing.
TOLERANCE = 0.1
#: How often the controller decides (--horizontal-pod-autoscaler-sync-period), in seconds.
SYNC_S = 15.0


def kafka_metric(lag: int, partitions: int, threshold: int) -> int:
    """Return the metric of KEDA's Kafka scaler: the lag, limited to one pod for each partition."""
    return partitions * threshold if lag // threshold > partitions else lag


@dataclass(slots=True)
class Autoscaler:
    """The autoscaler of one ScaledObject with one trigger, whose metric is an average over the pods."""

    spec: Mapping[str, Any]
    threshold: int
    _wanted: list[tuple[float, int]] = field(default_factory=list)
    _changes: list[tuple[float, int]] = field(default_factory=list)

    def decide(self, now: float, replicas: int, metric: float) -> int:
        """Return the new number of replicas for this total of the metric."""
        ratio = metric / (self.threshold * replicas)
        wanted = replicas if abs(ratio - 1.0) <= TOLERANCE else ceil(metric / self.threshold)
        wanted = min(max(wanted, self.spec["minReplicaCount"]), self.spec["maxReplicaCount"])
        self._wanted.append((now, wanted))
        decided = self._limited(now, replicas, self._stabilized(now, replicas))
        if decided != replicas:
            self._changes.append((now, decided - replicas))
        return decided

    def _rules(self, direction: str) -> Mapping[str, Any]:
        rules: Mapping[str, Any] = self.spec["advanced"]["horizontalPodAutoscalerConfig"]["behavior"][direction]
        return rules

    def _stabilized(self, now: float, replicas: int) -> int:
        """Scale up to the lowest number wanted in the scale-up window, or down to the highest in the other window."""
        lowest, highest = (
            choose(wanted for at, wanted in self._wanted if at > now - window_s or at == now)
            for choose, window_s in (
                (min, self._rules("scaleUp")["stabilizationWindowSeconds"]),
                (max, self._rules("scaleDown")["stabilizationWindowSeconds"]),
            )
        )
        return max(min(replicas, highest), lowest)

    def _limited(self, now: float, replicas: int, wanted: int) -> int:
        """Limit a change by the policies of its direction; `selectPolicy: Max` allows the largest of their changes."""
        if wanted == replicas:
            return replicas
        is_up = wanted > replicas
        rules = self._rules("scaleUp" if is_up else "scaleDown")
        assert rules["selectPolicy"] == "Max", "other policies are not simulated"
        policies: Sequence[Mapping[str, Any]] = rules["policies"]
        limits = [self._limit(now, replicas, policy, is_up=is_up) for policy in policies]
        return min(wanted, max(limits)) if is_up else max(wanted, min(limits))

    def _limit(self, now: float, replicas: int, policy: Mapping[str, Any], *, is_up: bool) -> int:
        recent = sum(change for at, change in self._changes if at > now - policy["periodSeconds"])
        before, value = replicas - recent, policy["value"]
        if policy["type"] == "Pods":
            return before + value if is_up else before - value
        return ceil(before * (1 + value / 100)) if is_up else int(before * (1 - value / 100))
