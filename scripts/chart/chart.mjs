// What of ECharts the report uses; everything else stays out of the bundle.
import { init, use } from "echarts/core";
import { CustomChart } from "echarts/charts";
import { DataZoomInsideComponent, DataZoomSliderComponent, GridComponent, TooltipComponent } from "echarts/components";
import { CanvasRenderer } from "echarts/renderers";

use([CustomChart, DataZoomInsideComponent, DataZoomSliderComponent, GridComponent, TooltipComponent, CanvasRenderer]);

export { init };
