//! Drawing on an SVG: text, bars, lines and dots, in pixels.

use anyhow::{Result, anyhow};
use plotters::backend::SVGBackend;
use plotters::coord::Shift;
use plotters::drawing::{DrawingArea, IntoDrawingArea};
use plotters::element::{Circle, PathElement, Rectangle, Text};
use plotters::style::text_anchor::{HPos, Pos, VPos};
use plotters::style::{Color, IntoFont, RGBColor, ShapeStyle};

/// Where a text's place is, of its line.
#[derive(Clone, Copy)]
pub(super) enum Anchor {
    Left,
    Centre,
    Right,
}

/// How wide a text is at most, as fonts usually are: the SVG's reader chooses the font.
pub(super) fn text_width(text: &str, size: i32) -> i32 {
    text.chars().count() as i32 * size * 58 / 100
}

pub(super) struct Canvas<'a> {
    area: DrawingArea<SVGBackend<'a>, Shift>,
}

impl<'a> Canvas<'a> {
    /// Without a background: it is the reader's.
    pub(super) fn new(svg: &'a mut String, width: i32, height: i32) -> Self {
        let size = (width.unsigned_abs(), height.unsigned_abs());
        Self { area: SVGBackend::with_string(svg, size).into_drawing_area() }
    }

    pub(super) fn finish(&self) -> Result<()> {
        self.area.present().map_err(|e| anyhow!("drawing a chart: {e}"))
    }

    /// Text whose middle is at the height of `at`.
    pub(super) fn text(
        &self,
        at: (i32, i32),
        size: i32,
        colour: RGBColor,
        anchor: Anchor,
        text: &str,
    ) -> Result<()> {
        let across = match anchor {
            Anchor::Left => HPos::Left,
            Anchor::Centre => HPos::Center,
            Anchor::Right => HPos::Right,
        };
        // plotters takes a size to be a line's height, and divides it by 1.24.
        let font = ("sans-serif", f64::from(size) * 1.24).into_font().color(&colour);
        self.draw(&Text::new(text.to_owned(), at, font.pos(Pos::new(across, VPos::Center))))
    }

    pub(super) fn bar(&self, from: (i32, i32), to: (i32, i32), colour: RGBColor) -> Result<()> {
        self.draw(&Rectangle::new([from, to], colour.filled()))
    }

    pub(super) fn line(&self, points: Vec<(i32, i32)>, colour: RGBColor, width: u32) -> Result<()> {
        let style: ShapeStyle = colour.stroke_width(width);
        self.draw(&PathElement::new(points, style))
    }

    /// A line that is seen through.
    pub(super) fn grid(&self, from: (i32, i32), to: (i32, i32), colour: RGBColor) -> Result<()> {
        self.draw(&PathElement::new([from, to], colour.mix(0.4)))
    }

    pub(super) fn dot(&self, at: (i32, i32), colour: RGBColor) -> Result<()> {
        self.draw(&Circle::new(at, 3, colour.filled()))
    }

    fn draw<E>(&self, element: &E) -> Result<()>
    where
        for<'b> &'b E: plotters::element::PointCollection<'b, (i32, i32)>,
        E: plotters::element::Drawable<SVGBackend<'a>>,
    {
        self.area.draw(element).map_err(|e| anyhow!("drawing a chart: {e}"))
    }
}
